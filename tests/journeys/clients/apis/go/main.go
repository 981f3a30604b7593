package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
)

// main serves /orders with the functions of docs/guides/protect-an-api.md, which are in the other file.
func main() {
	ctx := context.Background()
	verifier, err := newVerifier(ctx)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		raw := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		var found claims
		var err error
		if os.Getenv("INTROSPECTION") != "" {
			found, err = introspect(raw)
		} else {
			found, err = validate(ctx, verifier, raw)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if found.Scope != "orders:read" {
			http.Error(w, found.Scope, http.StatusForbidden)
			return
		}
		json.NewEncoder(w).Encode(found)
	})
	log.Fatal(http.ListenAndServe("localhost:"+os.Getenv("PORT"), nil))
}
