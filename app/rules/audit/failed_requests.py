"""Causes of failed client requests: each has a stable code and explains to developers how to fix it.

The code is part of the API and of the log of failed requests, never of an OAuth response. ``DomainError.with_cause``
sets the cause; other errors have the default cause of their error code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile

from msgspec import Struct

from app.rules.identifiers import CLIENT_SECRET, KINDS, parse_token
from app.rules.languages.translation import lazy_gettext
from app.rules.languages.translation import lazy_gettext as _
from app.rules.redaction import redact

# The table is readable only with one cause in each row, however long the row is.
# ruff: noqa: E501
# Among the parameters of a request that the portal's playground sent. The value of a parameter with this name that a
# client sends is never stored.
PLAYGROUND, PLAYGROUND_MARK = "playground", "yes"
MAX_PARAMETERS = 40
MAX_NAME_LENGTH = 64
MAX_VALUE_LENGTH = 500


class Explanation(Struct, frozen=True):
    """An explanation of one sentence, and one about how to fix the problem, in the app unless ``is_in_app`` is False."""

    what: str
    fix: str
    is_in_app: bool = True


# fmt: off
_ROWS: tuple[tuple[str, str, str], ...] = (
    # Format of the request.
    ("parameter_missing", _("A parameter was missing."), _("Send the parameter. The standard lists what this endpoint requires.")),
    ("parameter_repeated", _("A parameter was sent more than once."), _("Send each parameter once. A client library or proxy may have added it again.")),
    ("parameter_malformed", _("A parameter was malformed."), _("Send it in the format that the standard defines.")),
    ("parameters_in_address", _("Parameters of a POST were sent in the URL."), _("Send them only in the body, because URLs are logged.")),
    ("cors_origin_not_allowed", _("A web page called the endpoint from an origin that is not registered, so the browser hid the response."), _("Call the endpoint from the client's server, or register a redirect URI at this origin.")),
    ("wrong_content_type", _("The body was not form-encoded."), _("Send Content-Type: application/x-www-form-urlencoded, not JSON.")),
    ("body_encoded", _("The body was compressed."), _("Send it without a Content-Encoding.")),
    ("body_too_large", _("The body was too large."), _("Send less than 64 KiB.")),
    ("http_behind_proxy", _("The request used plain http, or a proxy did not forward that it used https."), _("Use https. Behind a proxy, have it send X-Forwarded-Proto and set GATEHOUSE_PROXY_HOPS to the number of proxies.")),
    # Client authentication.
    ("wrong_organization", _("The client used the endpoints of another organization."), _("Configure the client with its own issuer.")),
    ("client_disabled", _("The client is disabled."), _("An administrator can enable it on the client's page.")),
    ("organization_suspended", _("The organization is suspended."), _("An instance administrator can resume it.")),
    ("client_blocked", _("An administrator of the organization blocked the client."), _("An administrator can unblock it on the client's page under Access.")),
    ("credentials_missing", _("The client is confidential but did not authenticate."), _("Authenticate with the method that is registered for the client. If it is a secret, check that the client's configuration has one, since an empty secret counts as none.")),
    ("auth_method_mismatch", _("The client used another authentication method than the registered one."), _("Change the configuration of the client, or the registered method in its settings under Advanced.")),
    ("authenticated_twice", _("The client used two authentication methods at once, or sent two client IDs."), _("Use only one method, either the header or the body.")),
    ("secret_unknown", _("The client secret is incorrect."), _("Copy the secret again. It begins with gth_cs_ and has no spaces. If it is lost, add a new one.")),
    ("secret_revoked", _("The client used a revoked secret."), _("Deploy an active secret, or add one under Credentials.")),
    ("secret_blocked", _("The client used a secret from before a restore of a backup that was not confirmed."), _("Ask an administrator to confirm it under Credentials, or deploy a new secret.")),
    ("secret_expired", _("The client used an expired secret."), _("Deploy an active secret, or add one under Credentials.")),
    ("too_many_failures", _("Client authentication failed too often from this network."), _("Correct the credentials, then wait a minute.")),
    ("request_limit_reached", _("The client, its network or its organization sent more requests in a minute than it may."), _("Use access tokens until they expire, and wait as long as Retry-After says. An administrator of the instance can raise the limit.")),
    ("client_assertion_malformed", _("The client assertion is not a signed JWT with the claims that RFC 7523 requires."), _("Send iss and sub (both the client_id), aud, exp and jti, signed with a registered key.")),
    ("client_assertion_audience", _("The client assertion has another audience."), _("Set aud to the issuer, as a single string.")),
    ("client_assertion_clock_skew", _("The client assertion has expired or is not valid yet."), _("Synchronize the client's clock, and use a lifetime of one minute.")),
    ("client_assertion_signature", _("No registered key verifies the client assertion."), _("Register the public key, or sign with a registered key and name it in the kid header.")),
    ("client_keys_unavailable", _("The client's keys could not be fetched from its jwks_uri."), _("Serve the key set over https, as JSON and within a few seconds, or register the keys in jwks.")),
    ("client_assertion_replayed", _("The client assertion was already used."), _("Create a new assertion with a new jti for each request, including retries.")),
    # Authorization request.
    ("redirect_uri_missing", _("The request has no redirect URI."), _("Send redirect_uri. It is required even if only one is registered.")),
    ("redirect_uri_not_registered", _("The client sent a redirect URI that is not registered."), _("Change the client, or register this URI. URIs are compared character by character.")),
    ("redirect_uri_mismatch", _("The redirect URI at the token endpoint is not the one of the authorization request."), _("Send the same redirect_uri in both requests.")),
    ("post_logout_redirect_uri_not_registered", _("After signing out, users can't return to this URI, because it is not registered."), _("Change the client, or register the URI under Redirects. URIs are compared character by character.")),
    ("response_type_unsupported", _("The client requested an unsupported response type."), _("Send response_type=code. Implicit and hybrid flows are not supported.")),
    ("pkce_missing", _("The request had no code_challenge."), _("Use PKCE with S256. Where the setting oauth.pkce allows it, a confidential client can send an OpenID nonce instead.")),
    ("pkce_or_nonce_missing", _("The request had neither a code_challenge nor a nonce of at least eight characters."), _("Use PKCE with S256, or send a random nonce with the scope openid. For a library that can do neither, an administrator can change the setting oauth.pkce to public_clients.")),
    ("pkce_method_unsupported", _("The code challenge method is not S256."), _("Send code_challenge_method=S256 and 43 base64url characters.")),
    ("request_object_invalid", _("The request object is invalid or was not signed by the client for this server."), _("Sign it with a registered key, and set iss to the client_id and aud to the issuer.")),
    ("request_object_refused", _("A request object was sent where none is accepted, or is missing where one is required."), _("Check require_signed_request_object of the client, and the server metadata.")),
    ("par_required", _("A pushed authorization request is required."), _("Push the request to the pushed_authorization_request_endpoint. The client or its organization requires it (RFC 9126).")),
    ("par_unknown", _("The request_uri has expired, was used, or belongs to another client."), _("Push a new request for each sign-in, and use its request_uri once within a minute.")),
    ("par_too_many", _("The client has too many pending pushed requests."), _("Push a request when a user signs in, not in advance.")),
    ("authorize_too_many", _("Too many sign-ins of this client were started from one network and not completed."), _("Redirect users here only when they want to sign in, and not in a loop.")),
    ("login_required", _("The client sent prompt=none, but the user must sign in."), _("Send the request again without prompt=none.")),
    ("consent_required", _("The client sent prompt=none, but the user must consent, or an administrator must approve the client first."), _("Send the request again without prompt=none. Public clients, clients that registered themselves and redirect URIs on the user's device, such as localhost, need consent each time.")),
    ("interaction_required", _("The client sent prompt=none, but the user must interact."), _("Send the request again without prompt=none.")),
    ("user_refused", _("The user denied the request."), _("This is not an error. Explain to users why the client needs this access.")),
    # Requested access.
    ("grant_type_unsupported", _("The client used an unknown grant type."), _("Use one of the grant types in the server metadata.")),
    ("grant_type_not_allowed", _("The client or its organization does not allow this grant type."), _("Add the grant type in the client's settings under Advanced, or use another.")),
    ("scope_not_allowed", _("The client requested scopes that are not allowed for it."), _("Request fewer scopes, or add the scopes to the client under Access.")),
    ("scope_beyond_token", _("The client requested scopes that the token it sent does not have."), _("Request fewer scopes. To add some, let the user sign in again and request them.")),
    ("resource_not_allowed", _("The client requested a resource that is not allowed for it."), _("Request a resource that is registered for the client.")),
    ("access_not_granted", _("The client has no access to this API, or not to all of the requested scopes."), _("Request access on the client's API access page. Whoever manages the API decides. A user's consent is not enough for client credentials and token exchange.")),
    ("registration_refused", _("The client metadata is invalid."), _("Correct the field that the response names.")),
    ("registration_token_invalid", _("The registration token is invalid."), _("Use the registration_access_token of the latest response.")),
    ("exchange_refused", _("The client is not allowed to exchange this token for the requested access."), _("Check which client the token was issued to, and the client's token exchange policy.")),
    # Codes and tokens.
    ("code_unknown", _("The code is unknown or was issued to another client or issuer."), _("Send the code unchanged to the issuer that returned it.")),
    ("code_reused", _("The code was used twice, and the tokens issued for it were revoked."), _("Redeem each code once. Look for a duplicate callback, a retry, or a page reload.")),
    ("code_expired", _("The code has expired."), _("Redeem the code as soon as it arrives.")),
    ("verifier_mismatch", _("The code_verifier is missing or does not match the code_challenge."), _("Store the verifier with the state of the same sign-in. Two tabs must not share one.")),
    ("verifier_malformed", _("The code_verifier is too short or too long, or has characters that the standard does not allow."), _("Send 43 to 128 letters, digits or the characters -._~ (RFC 7636), without the = at the end that base64 adds. A newer version of the client library may do so.")),
    ("verifier_unexpected", _("A code_verifier was sent for a code whose authorization request had no code_challenge."), _("Send code_challenge and code_challenge_method=S256 in the authorization request. Something on the way may have removed them.")),
    ("grant_ended", _("The grant was revoked: the user signed out or withdrew access, or the account was changed."), _("Let the user sign in again.")),
    ("refresh_unknown", _("The refresh token is unknown or belongs to another client."), _("Store the whole token of the latest response, separately for each user.")),
    ("refresh_expired", _("The refresh token has expired."), _("Let the user sign in again. The lifetimes are in the settings of the organization.")),
    ("refresh_reuse", _("A refresh token was reused after rotation, and all tokens of the grant were revoked."), _("Store the new refresh token first, and let only one process refresh at a time.")),
    ("token_not_own", _("The token belongs to another client."), _("Revoke or introspect only tokens of this client.")),
    ("introspection_not_allowed", _("The client introspected a valid token that is neither its own nor for one of its APIs, so the response was inactive."), _("Register the API's identifier under resources of the client that introspects, or use the API's own client. If the audience is the issuer, the app requested no scope or resource of the API.")),
    # Proof of possession.
    ("dpop_missing", _("A required DPoP proof was missing."), _("Send a DPoP header with each request (RFC 9449).")),
    ("dpop_invalid", _("The DPoP proof is invalid for this request."), _("Sign the method, URL, time and jti with the key in the header. Use one proof per request.")),
    ("dpop_clock_skew", _("The DPoP proof was issued too long ago or in the future."), _("Synchronize the client's clock.")),
    ("dpop_replayed", _("The DPoP proof was already used."), _("Create a new proof with a new jti for each request, including retries.")),
    ("dpop_nonce", _("The server's nonce in the DPoP proof is missing or expired."), _("Retry with the nonce of the DPoP-Nonce header. Libraries do this automatically.")),
    ("dpop_wrong_key", _("The DPoP proof used another key than the code or token is bound to."), _("Keep the key as long as the tokens bound to it.")),
    # Devices.
    ("device_code_unknown", _("The device code is unknown, was used, or belongs to another client."), _("Request a new device code.")),
    ("device_code_expired", _("The device code has expired."), _("Request a new device code and show its user code.")),
    ("device_refused", _("The user denied the request."), _("This is not an error. The device can start again when the user wants to.")),
    ("device_too_fast", _("The device polled too often."), _("Wait for the interval between requests, and five seconds longer after each slow_down.")),
    ("device_too_many", _("The client has too many pending device codes."), _("Request a device code when a user wants to sign in, not in advance.")),
    # Any other error.
    ("refused", _("The request was rejected."), _("See error and error_description in the response.")),
)
# fmt: on

# An administrator fixes these, and the app cannot.
_NOT_IN_APP = frozenset({"client_disabled", "organization_suspended", "client_blocked", "access_not_granted"})

CAUSES: dict[str, Explanation] = {
    code: Explanation(what, fix, is_in_app=code not in _NOT_IN_APP) for code, what, fix in _ROWS
}

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
    "consent_required": "consent_required",
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


class TextDifference(Struct, frozen=True):
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
        """Description of the difference, because a single slash is hard to see."""
        if not self.received:
            return lazy_gettext("“%(expected)s” is missing.", expected=self.expected)
        if not self.expected:
            return lazy_gettext("“%(received)s” is extra.", received=self.received)
        return lazy_gettext(
            "“%(received)s” was sent instead of “%(expected)s”.",
            received=self.received,
            expected=self.expected,
        )


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


def describe_secret(secret: str) -> str:
    """Describe what was sent as a client secret that no client has, without any part of it."""
    bare = secret.strip(" \t\r\n\"'")
    parsed = parse_token(bare)
    if parsed is None:
        is_damaged = bare.startswith(f"gth_{CLIENT_SECRET}_")
        return "a client secret that is incomplete or was changed" if is_damaged else "not a client secret"
    if parsed.kind != CLIENT_SECRET:
        return KINDS[parsed.kind]
    if bare != secret:
        return "a client secret with quotes, spaces or a line break around it"
    return "a complete client secret, but not one of this client"


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
