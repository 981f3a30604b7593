package com.example;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.security.access.prepost.PreAuthorize;
import org.springframework.security.config.annotation.method.configuration.EnableMethodSecurity;
import org.springframework.security.core.Authentication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves /orders with the class or the properties of docs/guides/protect-an-api.md. */
@SpringBootApplication
@EnableMethodSecurity
@RestController
public class Api {

    @GetMapping("/orders")
    @PreAuthorize("hasAuthority('SCOPE_orders:read')")
    String orders(Authentication authentication) {
        return authentication.getName();
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Api.class, arguments);
    }
}
