"""Causes of failed client requests: each has a stable code and explains to developers how to fix it.

The code is part of the API and of the log of failed requests, never of an OAuth response. ``DomainError.with_cause``
sets the cause; other errors have the default cause of their error code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from app.rules.redaction import redact
from app.rules.token_values import KINDS, parse_token

# The table is readable only with one cause in each row, however long the row is.
# ruff: noqa: E501
# Among the parameters of a request that the portal's playground sent. The value of a parameter with this name that a
# client sends is never stored.
PLAYGROUND, PLAYGROUND_MARK = "playground", "yes"
MAX_PARAMETERS = 40
MAX_NAME_LENGTH = 64
MAX_VALUE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation of one sentence, and one about how developers of the client can fix the problem."""

    what: str
    fix: str


# fmt: off
_ROWS: tuple[tuple[str, str, str], ...] = (
    # Format of the request.
    ("parameter_missing", "A parameter was missing.", "Send the parameter. The standard lists what this endpoint requires."),
    ("parameter_repeated", "A parameter was sent more than once.", "Send each parameter once. A client library or proxy may have added it again."),
    ("parameter_malformed", "A parameter was malformed.", "Send it in the format that the standard defines."),
    ("parameters_in_address", "Parameters of a POST were sent in the URL.", "Send them only in the body, because URLs are logged."),
    ("cors_origin_not_allowed", "A web page called the endpoint from an origin that is not registered, so the browser hid the response.", "Call the endpoint from the client's server, or register a redirect URI at this origin."),
    ("wrong_content_type", "The body was not form-encoded.", "Send Content-Type: application/x-www-form-urlencoded, not JSON."),
    ("body_encoded", "The body was compressed.", "Send it without a Content-Encoding."),
    ("body_too_large", "The body was too large.", "Send less than 64 KiB."),
    ("http_behind_proxy", "The request used plain http, or a proxy did not forward that it used https.", "Use https. Behind a proxy, have it send X-Forwarded-Proto and set GATEHOUSE_PROXY_HOPS to the number of proxies."),
    # Client authentication.
    ("wrong_organization", "The client used the endpoints of another organization.", "Configure the client with its own issuer."),
    ("client_disabled", "The client, or its organization, is disabled.", "An administrator can enable it on the page of the client or organization."),
    ("client_blocked", "An administrator of the organization blocked the client.", "An administrator can unblock it on the client's page under Access."),
    ("credentials_missing", "The client is confidential but did not authenticate.", "Authenticate with the method that is registered for the client."),
    ("auth_method_mismatch", "The client used another authentication method than the registered one.", "Change the configuration of the client, or the registered method under Advanced."),
    ("authenticated_twice", "The client used two authentication methods at once, or sent two client IDs.", "Use only one method, either the header or the body."),
    ("secret_unknown", "The client secret is incorrect.", "Copy the secret again. It begins with gth_cs_ and has no spaces. If it is lost, add a new one."),
    ("secret_revoked", "The client used a revoked secret.", "Deploy an active secret, or add one under Credentials."),
    ("secret_blocked", "The client used a secret from before a restore of a backup that was not confirmed.", "Ask an administrator to confirm it under Credentials, or deploy a new secret."),
    ("secret_expired", "The client used an expired secret.", "Deploy an active secret, or add one under Credentials."),
    ("too_many_failures", "Client authentication failed too often from this network.", "Correct the credentials, then wait a minute."),
    ("request_limit_reached", "The client, its network or its organization sent more requests in a minute than it may.", "Use access tokens until they expire, and wait as long as Retry-After says. An administrator of the instance can raise the limit."),
    ("client_assertion_malformed", "The client assertion is not a signed JWT with the claims that RFC 7523 requires.", "Send iss and sub (both the client_id), aud, exp and jti, signed with a registered key."),
    ("client_assertion_audience", "The client assertion has another audience.", "Set aud to the issuer, as a single string."),
    ("client_assertion_clock_skew", "The client assertion has expired or is not valid yet.", "Synchronize the client's clock, and use a lifetime of one minute."),
    ("client_assertion_signature", "No registered key verifies the client assertion.", "Register the public key, or sign with a registered key and name it in the kid header."),
    ("client_keys_unavailable", "The client's keys could not be fetched from its jwks_uri.", "Serve the key set over https, as JSON and within a few seconds, or register the keys in jwks."),
    ("client_assertion_replayed", "The client assertion was already used.", "Create a new assertion with a new jti for each request, including retries."),
    # Authorization request.
    ("redirect_uri_missing", "The request has no redirect URI.", "Send redirect_uri. It is required even if only one is registered."),
    ("redirect_uri_not_registered", "The client sent a redirect URI that is not registered.", "Change the client, or register this URI. URIs are compared character by character."),
    ("redirect_uri_mismatch", "The redirect URI at the token endpoint is not the one of the authorization request.", "Send the same redirect_uri in both requests."),
    ("post_logout_redirect_uri_not_registered", "After signing out, users can't return to this URI, because it is not registered.", "Change the client, or register the URI under Redirects. URIs are compared character by character."),
    ("response_type_unsupported", "The client requested an unsupported response type.", "Send response_type=code. Implicit and hybrid flows are not supported."),
    ("pkce_missing", "The request had no code_challenge.", "Use PKCE with S256. Where the setting oauth.pkce allows it, a confidential client can send an OpenID nonce instead."),
    ("pkce_or_nonce_missing", "The request had neither a code_challenge nor a nonce of at least eight characters.", "Use PKCE with S256, or send a random nonce with the scope openid. For a library that can do neither, an administrator can change the setting oauth.pkce to public_clients."),
    ("pkce_method_unsupported", "The code challenge method is not S256.", "Send code_challenge_method=S256 and 43 base64url characters."),
    ("request_object_invalid", "The request object is invalid or was not signed by the client for this server.", "Sign it with a registered key, and set iss to the client_id and aud to the issuer."),
    ("request_object_refused", "A request object was sent where none is accepted, or is missing where one is required.", "Check require_signed_request_object of the client, and the server metadata."),
    ("par_required", "A pushed authorization request is required.", "Push the request to the pushed_authorization_request_endpoint. The client or its organization requires it (RFC 9126)."),
    ("par_unknown", "The request_uri has expired, was used, or belongs to another client.", "Push a new request for each sign-in, and use its request_uri once within a minute."),
    ("par_too_many", "The client has too many pending pushed requests.", "Push a request when a user signs in, not in advance."),
    ("authorize_too_many", "Too many sign-ins of this client were started from one network and not completed.", "Redirect users here only when they want to sign in, and not in a loop."),
    ("login_required", "The client sent prompt=none, but the user must sign in.", "Send the request again without prompt=none."),
    ("interaction_required", "The client sent prompt=none, but the user must interact.", "Send the request again without prompt=none."),
    ("user_refused", "The user denied the request.", "This is not an error. Explain to users why the client needs this access."),
    # Requested access.
    ("grant_type_unsupported", "The client used an unknown grant type.", "Use one of the grant types in the server metadata."),
    ("grant_type_not_allowed", "The client or its organization does not allow this grant type.", "Add the grant type under Advanced, or use another."),
    ("scope_not_allowed", "The client requested scopes that are not allowed for it.", "Request fewer scopes, or add the scopes to the client under Access."),
    ("resource_not_allowed", "The client requested a resource that is not allowed for it.", "Request a resource that is registered for the client."),
    ("access_not_granted", "The client has no access to this API, or not to all of the requested scopes.", "Request access on the client's API access page. Whoever manages the API decides. A user's consent is not enough for client credentials and token exchange."),
    ("registration_refused", "The client metadata is invalid.", "Correct the field that the response names."),
    ("registration_token_invalid", "The registration token is invalid.", "Use the registration_access_token of the latest response."),
    ("exchange_refused", "The client is not allowed to exchange this token for the requested access.", "Check which client the token was issued to, and the client's token exchange policy."),
    # Codes and tokens.
    ("code_unknown", "The code is unknown or was issued to another client or issuer.", "Send the code unchanged to the issuer that returned it."),
    ("code_reused", "The code was used twice, and the tokens issued for it were revoked.", "Redeem each code once. Look for a duplicate callback, a retry, or a page reload."),
    ("code_expired", "The code has expired.", "Redeem the code as soon as it arrives."),
    ("verifier_mismatch", "The code_verifier is missing or does not match the code_challenge.", "Store the verifier with the state of the same sign-in. Two tabs must not share one."),
    ("verifier_unexpected", "A code_verifier was sent for a code whose authorization request had no code_challenge.", "Send code_challenge and code_challenge_method=S256 in the authorization request. Something on the way may have removed them."),
    ("grant_ended", "The grant was revoked: the user signed out or withdrew access, or the account was changed.", "Let the user sign in again."),
    ("refresh_unknown", "The refresh token is unknown or belongs to another client.", "Store the whole token of the latest response, separately for each user."),
    ("refresh_expired", "The refresh token has expired.", "Let the user sign in again. The lifetimes are in the settings of the organization."),
    ("refresh_reuse", "A refresh token was reused after rotation, and all tokens of the grant were revoked.", "Store the new refresh token first, and let only one process refresh at a time."),
    ("token_not_own", "The token belongs to another client.", "Revoke or introspect only tokens of this client."),
    ("introspection_not_allowed", "The client introspected a valid token that is neither its own nor for one of its APIs, so the response was inactive.", "Register the API's identifier under resources of the client that introspects, or use the API's own client."),
    # Proof of possession.
    ("dpop_missing", "A required DPoP proof was missing.", "Send a DPoP header with each request (RFC 9449)."),
    ("dpop_invalid", "The DPoP proof is invalid for this request.", "Sign the method, URL, time and jti with the key in the header. Use one proof per request."),
    ("dpop_clock_skew", "The DPoP proof was issued too long ago or in the future.", "Synchronize the client's clock."),
    ("dpop_replayed", "The DPoP proof was already used.", "Create a new proof with a new jti for each request, including retries."),
    ("dpop_nonce", "The server's nonce in the DPoP proof is missing or expired.", "Retry with the nonce of the DPoP-Nonce header. Libraries do this automatically."),
    ("dpop_wrong_key", "The DPoP proof used another key than the code or token is bound to.", "Keep the key as long as the tokens bound to it."),
    # Devices.
    ("device_code_unknown", "The device code is unknown, was used, or belongs to another client.", "Request a new device code."),
    ("device_code_expired", "The device code has expired before a user entered it.", "Request a new device code and show its user code."),
    ("device_refused", "The user denied the request.", "This is not an error. The device can start again when the user wants to."),
    ("device_too_fast", "The device polled too often.", "Wait for the interval between requests, and five seconds longer after each slow_down."),
    ("device_too_many", "The client has too many pending device codes.", "Request a device code when a user wants to sign in, not in advance."),
    # Any other error.
    ("refused", "The request was rejected.", "See error and error_description in the response."),
)
# fmt: on

CAUSES: dict[str, Explanation] = {code: Explanation(what, fix) for code, what, fix in _ROWS}

# The cause of an error that names none, by error code.
CAUSES_BY_ERROR: dict[str, str] = {
    "invalid_request": "parameter_malformed",
    "invalid_client": "secret_unknown",
    "invalid_grant": "grant_ended",
    "invalid_scope": "scope_not_allowed",
    "invalid_target": "resource_not_allowed",
    "unauthorized_client": "grant_type_not_allowed",
    "unsupported_grant_type": "grant_type_unsupported",
    "unsupported_response_type": "response_type_unsupported",
    "access_denied": "user_refused",
    "login_required": "login_required",
    "interaction_required": "interaction_required",
    "consent_required": "interaction_required",
    "account_selection_required": "interaction_required",
    "request_not_supported": "request_object_refused",
    "request_uri_not_supported": "request_object_refused",
    "invalid_request_object": "request_object_invalid",
    "invalid_request_uri": "par_unknown",
    "invalid_dpop_proof": "dpop_invalid",
    "use_dpop_nonce": "dpop_nonce",
    "invalid_redirect_uri": "registration_refused",
    "invalid_client_metadata": "registration_refused",
    "too_many_requests": "too_many_failures",
    "slow_down": "device_too_fast",
    "expired_token": "device_code_expired",
}


def default_cause(error_code: str) -> str:
    """Return the cause of an error that names none."""
    return CAUSES_BY_ERROR.get(error_code, "refused")


@dataclass(frozen=True, slots=True)
class TextDifference:
    """The difference between ``received`` and ``closest``, the most similar expected text.

    Both share the parts ``before`` and ``after``.
    """

    closest: str
    before: str
    received: str
    expected: str
    after: str

    @property
    def message(self) -> str:
        """The difference in words, because a single slash is hard to see."""
        if not self.received:
            return f"“{self.expected}” is missing."
        if not self.expected:
            return f"“{self.received}” is extra."
        return f"“{self.received}” was sent instead of “{self.expected}”."


def closest_difference(received: str, expected: Iterable[str]) -> TextDifference | None:
    """Return the difference from the most similar expected text, or None if there is none."""
    found = [_compare(received, text) for text in expected]
    return max(found, key=lambda one: len(one.before) + len(one.after), default=None)


def _compare(received: str, expected: str) -> TextDifference:
    before = _common_prefix(received, expected)
    rest, expected_rest = received[len(before) :], expected[len(before) :]
    after = _common_prefix(rest[::-1], expected_rest[::-1])[::-1]
    return TextDifference(
        expected, before, rest.removesuffix(after), expected_rest.removesuffix(after), after
    )


def _common_prefix(first: str, second: str) -> str:
    """Return the common beginning of both texts."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return "".join(pair[0] for pair in pairs)


# Parameters whose values are not secret. A code challenge is a hash of its verifier.
_PUBLIC_PARAMETERS = frozenset(
    [
        "acr_values",
        "audience",
        "claims_locales",
        "client_assertion_type",
        "client_id",
        "code_challenge",
        "code_challenge_method",
        "display",
        "dpop_jkt",
        "grant_type",
        "max_age",
        "post_logout_redirect_uri",
        "prompt",
        "redirect_uri",
        "requested_token_type",
        "resource",
        "response_mode",
        "response_type",
        "scope",
        "subject_token_type",
        "actor_token_type",
        "token_type_hint",
        "ui_locales",
    ]
)


def redact_parameters(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters for the log, without any secret, code, token, state or nonce."""
    shown = {}
    for name, value in list(sent.items())[:MAX_PARAMETERS]:
        kept = _truncate(redact(value)) if name in _PUBLIC_PARAMETERS else _describe_removed(value)
        shown[redact(name[:MAX_NAME_LENGTH])] = kept
    return shown


def redact_and_truncate(text: str, max_length: int) -> str:
    """Remove secrets from the text and limit its length."""
    text = redact(text)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def _truncate(value: str) -> str:
    return value if len(value) <= MAX_VALUE_LENGTH else f"{value[:MAX_VALUE_LENGTH]}…"


def _describe_removed(value: str) -> str:
    """Describe a removed value: the kind of secret, or its length."""
    parsed = parse_token(value)
    if parsed is not None and parsed.kind in KINDS:
        return f"[{KINDS[parsed.kind]}, removed]"
    if value.startswith("eyJ"):
        return "[a JWT, removed]"
    return f"[{len(value)} characters, removed]"
