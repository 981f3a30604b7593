"""What the standards decide: requests, scopes, tokens, PKCE, claims."""
