# oauth2-proxy: https://oauth2-proxy.github.io/oauth2-proxy/configuration/providers/openid_connect. The arguments are
# further options: by default it sends neither a PKCE challenge nor a nonce, and suggests PKCE when it starts.
exec "$PROGRAMS/oauth2-proxy" \
    --provider oidc \
    --provider-display-name "Gatehouse" \
    --client-id "$CLIENT_ID" \
    --client-secret "$CLIENT_SECRET" \
    --redirect-url "http://localhost:$PORT/oauth2/callback" \
    --oidc-issuer-url "$ISSUER" \
    --scope "openid profile email offline_access" \
    --cookie-secure=false \
    --cookie-secret 0123456789abcdef0123456789abcdef \
    --cookie-refresh 1s \
    --email-domain "*" \
    --whitelist-domain "${ISSUER_HOST}" \
    --upstream static://200 \
    --http-address "localhost:$PORT" \
    "$@"
