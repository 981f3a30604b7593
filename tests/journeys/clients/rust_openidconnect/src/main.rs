//! The openidconnect crate: https://docs.rs/openidconnect/4.1.0/openidconnect/#openid-connect-relying-party-client.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use openidconnect::core::{CoreAuthenticationFlow, CoreClient, CoreIdToken, CoreUserInfoClaims};
use openidconnect::reqwest;
use openidconnect::url::Url;
use openidconnect::{
    AccessToken, AuthorizationCode, ClientId, ClientSecret, CsrfToken, IssuerUrl, LogoutRequest, Nonce,
    OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, PostLogoutRedirectUrl,
    ProviderMetadataWithLogout, RedirectUrl, RefreshToken, Scope, TokenResponse,
};

type Failure = Box<dyn Error>;

enum Page {
    Redirect(Url),
    Text(String),
}

/// Between the redirect to Gatehouse and the callback.
struct Pending(PkceCodeVerifier, CsrfToken, Nonce);

/// This application has one user.
struct SignedIn {
    access_token: AccessToken,
    refresh_token: RefreshToken,
    id_token: CoreIdToken,
}

fn main() -> Result<(), Failure> {
    let port = env::var("PORT")?;
    let here = Url::parse(&format!("http://localhost:{port}"))?;
    let authority = std::fs::read(env::var("SSL_CERT_FILE")?)?;
    let http_client = reqwest::blocking::ClientBuilder::new()
        .redirect(reqwest::redirect::Policy::none())
        .add_root_certificate(reqwest::Certificate::from_pem(&authority)?) // of the tests
        .build()?;

    let provider_metadata =
        ProviderMetadataWithLogout::discover(&IssuerUrl::new(env::var("ISSUER")?)?, &http_client)?;
    let end_session_endpoint = provider_metadata.additional_metadata().end_session_endpoint.clone();
    let client = CoreClient::from_provider_metadata(
        provider_metadata,
        ClientId::new(env::var("CLIENT_ID")?),
        Some(ClientSecret::new(env::var("CLIENT_SECRET")?)),
    )
    .set_redirect_uri(RedirectUrl::from_url(here.join("/callback")?));

    let mut pending: Option<Pending> = None;
    let mut signed_in: Option<SignedIn> = None;
    let mut respond = |address: Url| -> Result<Page, Failure> {
        let parameter = |name: &str| address.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        match address.path() {
            "/login" => {
                let (pkce_challenge, pkce_verifier) = PkceCodeChallenge::new_random_sha256();
                let (auth_url, csrf_token, nonce) = client
                    .authorize_url(
                        CoreAuthenticationFlow::AuthorizationCode,
                        CsrfToken::new_random,
                        Nonce::new_random,
                    )
                    .add_scope(Scope::new("profile".to_string()))
                    .add_scope(Scope::new("email".to_string()))
                    .add_scope(Scope::new("offline_access".to_string()))
                    .set_pkce_challenge(pkce_challenge)
                    .url();
                pending = Some(Pending(pkce_verifier, csrf_token, nonce));
                Ok(Page::Redirect(auth_url))
            }
            "/callback" => {
                let Pending(pkce_verifier, csrf_token, nonce) = pending.take().ok_or("no sign-in was started")?;
                if parameter("state").as_ref() != Some(csrf_token.secret()) {
                    return Err("wrong state".into());
                }
                let token_response = client
                    .exchange_code(AuthorizationCode::new(parameter("code").ok_or("no code")?))?
                    .set_pkce_verifier(pkce_verifier)
                    .request(&http_client)?;
                let id_token = token_response.id_token().ok_or("Server did not return an ID token")?;
                let id_token_verifier = client.id_token_verifier();
                id_token.claims(&id_token_verifier, &nonce)?;
                signed_in = Some(SignedIn {
                    access_token: token_response.access_token().clone(),
                    refresh_token: token_response.refresh_token().ok_or("no refresh token")?.clone(),
                    id_token: id_token.clone(),
                });
                Ok(Page::Redirect(here.join("/profile")?))
            }
            "/profile" => {
                let user = signed_in.as_ref().ok_or("not signed in")?;
                let userinfo: CoreUserInfoClaims =
                    client.user_info(user.access_token.clone(), None)?.request(&http_client)?;
                Ok(Page::Text(serde_json::to_string(&userinfo)?))
            }
            "/refresh" => {
                let user = signed_in.as_mut().ok_or("not signed in")?;
                let token_response =
                    client.exchange_refresh_token(&user.refresh_token)?.request(&http_client)?;
                user.access_token = token_response.access_token().clone();
                user.refresh_token = token_response.refresh_token().ok_or("no refresh token")?.clone();
                Ok(Page::Redirect(here.join("/profile")?))
            }
            "/logout" => {
                let user = signed_in.take().ok_or("not signed in")?;
                let endpoint = end_session_endpoint.clone().ok_or("no end session endpoint")?;
                let request = LogoutRequest::from(endpoint)
                    .set_id_token_hint(&user.id_token)
                    .set_post_logout_redirect_uri(PostLogoutRedirectUrl::from_url(here.join("/signed-out")?));
                Ok(Page::Redirect(request.http_get_url()))
            }
            _ => Ok(Page::Text("signed out".to_string())),
        }
    };

    for stream in TcpListener::bind(format!("localhost:{port}"))?.incoming() {
        let mut stream = stream?;
        let mut lines = BufReader::new(&stream).lines();
        let request = lines.next().unwrap_or(Ok(String::new()))?;
        while lines.next().is_some_and(|line| line.is_ok_and(|text| !text.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap_or("/");
        let (status, header, body) = match respond(here.join(path)?) {
            Ok(Page::Redirect(url)) => ("302 Found", format!("Location: {url}\r\n"), String::new()),
            Ok(Page::Text(text)) => ("200 OK", String::new(), text),
            Err(error) => ("500 Internal Server Error", String::new(), format!("{error:?}")),
        };
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")?;
    }
    Ok(())
}
