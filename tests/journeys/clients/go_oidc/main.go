// golang.org/x/oauth2 with coreos/go-oidc: https://pkg.go.dev/golang.org/x/oauth2#example-Config,
// https://pkg.go.dev/github.com/coreos/go-oidc/v3/oidc and its example/userinfo.
package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

func randString() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		log.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func main() {
	ctx := context.Background()
	provider, err := oidc.NewProvider(ctx, os.Getenv("ISSUER"))
	if err != nil {
		log.Fatal(err)
	}
	here := "http://localhost:" + os.Getenv("PORT")
	config := oauth2.Config{
		ClientID:     os.Getenv("CLIENT_ID"),
		ClientSecret: os.Getenv("CLIENT_SECRET"),
		Endpoint:     provider.Endpoint(),
		RedirectURL:  here + "/auth/gatehouse/callback",
		Scopes:       []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess},
	}
	verifier := provider.Verifier(&oidc.Config{ClientID: config.ClientID})

	// This application has one user.
	var state, codeVerifier, rawIDToken string
	var token *oauth2.Token

	http.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		state = randString()
		codeVerifier = oauth2.GenerateVerifier()
		http.Redirect(w, r, config.AuthCodeURL(state, oauth2.S256ChallengeOption(codeVerifier)), http.StatusFound)
	})

	http.HandleFunc("/auth/gatehouse/callback", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("state") != state {
			http.Error(w, "state did not match", http.StatusBadRequest)
			return
		}
		token, err = config.Exchange(ctx, r.URL.Query().Get("code"), oauth2.VerifierOption(codeVerifier))
		if err != nil {
			http.Error(w, "Failed to exchange token: "+err.Error(), http.StatusInternalServerError)
			return
		}
		rawIDToken, _ = token.Extra("id_token").(string)
		if _, err := verifier.Verify(ctx, rawIDToken); err != nil {
			http.Error(w, "Failed to verify ID token: "+err.Error(), http.StatusInternalServerError)
			return
		}
		http.Redirect(w, r, "/profile", http.StatusFound)
	})

	http.HandleFunc("/profile", func(w http.ResponseWriter, r *http.Request) {
		if token == nil {
			http.Error(w, "Not signed in", http.StatusUnauthorized)
			return
		}
		source := config.TokenSource(ctx, token)
		userInfo, err := provider.UserInfo(ctx, source)
		if err != nil {
			http.Error(w, "Failed to get userinfo: "+err.Error(), http.StatusInternalServerError)
			return
		}
		if token, err = source.Token(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(userInfo)
	})

	http.HandleFunc("/refresh", func(w http.ResponseWriter, r *http.Request) {
		token.Expiry = time.Now() // as an hour later: the next request refreshes
		http.Redirect(w, r, "/profile", http.StatusFound)
	})

	http.HandleFunc("/logout", func(w http.ResponseWriter, r *http.Request) {
		// The libraries have nothing for this but the discovery document.
		var metadata struct {
			EndSessionEndpoint string `json:"end_session_endpoint"`
		}
		if err := provider.Claims(&metadata); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		query := url.Values{"id_token_hint": {rawIDToken}, "post_logout_redirect_uri": {here + "/signed-out"}}
		token = nil
		http.Redirect(w, r, metadata.EndSessionEndpoint+"?"+query.Encode(), http.StatusFound)
	})

	http.HandleFunc("/signed-out", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("signed out"))
	})

	log.Fatal(http.ListenAndServe("localhost:"+os.Getenv("PORT"), nil))
}
