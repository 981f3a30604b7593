"""Why requests of clients are refused, for their makers: each cause has a stable code and says how to mend it.

The code stands in the API and in the log of failed requests, never on the OAuth wire. Where a request is refused,
``DomainError.with_cause`` names the cause; what names none has the cause of its error code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from app.rules.redaction import redact
from app.rules.token_values import parse_token

# One cause a row is what makes the table readable, however long a row is.
# ruff: noqa: E501


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happened, in one sentence, and what the client's makers can do about it."""

    what: str
    fix: str


# fmt: off
_ROWS: tuple[tuple[str, str, str], ...] = (
    # The form of the request.
    ("parameter_missing", "The request lacked a parameter.", "Send it; the standard's section for this endpoint lists what is required."),
    ("parameter_repeated", "A parameter was sent more than once.", "Send each parameter once: a client library or proxy may add its own beside yours."),
    ("parameter_malformed", "A parameter did not have the form that the standard gives it.", "Send it in that form."),
    ("parameters_in_address", "Parameters of a POST stood in the address.", "Send them in the body alone: addresses end up in logs."),
    ("wrong_content_type", "The body was not form-encoded.", "Send Content-Type: application/x-www-form-urlencoded, not JSON."),
    ("body_too_large", "The body was longer than this service reads.", "Send less than 64 KiB."),
    ("http_behind_proxy", "The request came by plain http, or a proxy did not say that it had come by https.", "Use https. Behind a proxy, have it send X-Forwarded-Proto and set GATEHOUSE_PROXY_HOPS to the number of proxies."),
    # Who asks.
    ("wrong_organization", "The client was sent to the endpoints of an organization that is not its own.", "Configure the client with its own issuer."),
    ("client_disabled", "The client, or its organization, is disabled.", "An administrator enables it on the page of the client or organization."),
    ("client_blocked", "An administrator of the organization blocked the client.", "Only they unblock it, on the client's page under Access."),
    ("credentials_missing", "The client is confidential and showed nothing that proves who it is.", "Authenticate by the method that is registered."),
    ("auth_method_mismatch", "The client authenticated by another method than it registered.", "Change the client's library, or the registered method under Advanced."),
    ("authenticated_twice", "The client authenticated in two ways at once, or named two client ids.", "Use one method: the header or the body, not both."),
    ("secret_unknown", "The client secret is none of this client's.", "Copy the secret again: it begins with gth_cs_ and has no spaces around it. If it is lost, add a new one."),
    ("secret_revoked", "The client used a secret that was revoked.", "Deploy a secret that is alive, or add one on the Credentials page."),
    ("secret_expired", "The client used a secret that has ended.", "Deploy a secret that is alive, or add one on the Credentials page."),
    ("too_many_failures", "Client authentication failed too often from this network.", "Correct the credentials, then wait a minute."),
    ("client_assertion_malformed", "The client assertion is not a signed JWT with the claims that RFC 7523 asks for.", "Send iss and sub (both the client_id), aud, exp and jti, signed with a registered key."),
    ("client_assertion_audience", "The client assertion is meant for somebody else.", "Set aud to the issuer, as one string."),
    ("client_assertion_clock_skew", "The client assertion's times do not fit the clock here.", "Synchronise the client's clock, and let assertions live a minute."),
    ("client_assertion_signature", "No registered key verifies the client assertion.", "Register the public key, or sign with the private half of a registered one; the header's kid must name it."),
    ("client_keys_unavailable", "The client's keys could not be read at its jwks_uri.", "Serve the key set there by https, as JSON and within a few seconds, or register the keys in jwks."),
    ("client_assertion_replayed", "The client assertion was used before.", "Make a new one with a new jti for each request, retries included."),
    # The authorization request.
    ("redirect_uri_missing", "The request did not say where to send the person back to.", "Send redirect_uri; it is required even where one alone is registered."),
    ("redirect_uri_not_registered", "The client sent a redirect URI that is not registered.", "Change the client, or add this URI: it is compared character by character."),
    ("redirect_uri_mismatch", "The redirect URI at the token endpoint is not the one of the authorization request.", "Send the same redirect_uri in both requests."),
    ("response_type_unsupported", "The client asked for another response than a code.", "Send response_type=code: implicit and hybrid flows do not exist here."),
    ("pkce_missing", "The request had no code_challenge.", "Use PKCE with S256; every client must, confidential ones too."),
    ("pkce_method_unsupported", "The code challenge was not made with S256.", "Send code_challenge_method=S256 and 43 base64url characters."),
    ("request_object_invalid", "The request object is not one that the client signed for this server.", "Sign it with a registered key, and set iss to the client_id and aud to the issuer."),
    ("request_object_refused", "The request came as a request object where none is taken, or without one where it must.", "Look at the client's require_signed_request_object, and at the server's metadata."),
    ("par_required", "The request was not pushed first.", "Push it to the pushed_authorization_request_endpoint; the client or its organization demands it (RFC 9126)."),
    ("par_unknown", "The request_uri has ended, was used, or is not this client's.", "Push a new request for each sign-in, and use its request_uri within a minute, once."),
    ("par_too_many", "The client has too many pushed requests open.", "Push a request when a person wants to sign in, not ahead of time."),
    ("authorize_too_many", "Too many sign-ins of the client were begun from one network and not finished.", "Send people here when they want to sign in, and not again and again by itself."),
    ("login_required", "The client asked for no pages, and the person would have had to sign in.", "Send the request again without prompt=none."),
    ("interaction_required", "The client asked for no pages, and the person would have had to decide something.", "Send the request again without prompt=none."),
    ("user_refused", "The person said no.", "Nothing is broken. Tell people why the client needs what it asks for."),
    # What was asked for.
    ("grant_type_unsupported", "The client asked for a grant type that this server does not know.", "Use one of the grant types in the server's metadata."),
    ("grant_type_not_allowed", "The client or its organization does not allow this grant type.", "Add the grant type under Advanced, or use another."),
    ("scope_not_allowed", "The client asked for scopes that it may not have.", "Ask for less, or add the scopes on the Access page."),
    ("resource_not_allowed", "The client named a resource that it may not have tokens for.", "Name a resource that is registered for the client."),
    ("registration_refused", "What the client wants to be registered as cannot be.", "Correct the field that the answer names."),
    ("registration_token_invalid", "The token does not allow this registration.", "Use the registration_access_token of the latest answer."),
    ("exchange_refused", "The token may not be exchanged by this client, or not for what it wants.", "Look at whose token it is, and at the client's policy for token exchange."),
    # Codes and tokens.
    ("code_unknown", "The code is not one of this client's at this issuer.", "Send the code that came back for this client, unchanged, to the same issuer."),
    ("code_reused", "The code was used a second time; what the first use gave is revoked.", "Redeem a code once: look for a double callback, a retry, or a page that is loaded again."),
    ("code_expired", "The code had ended.", "Redeem it as soon as it arrives."),
    ("verifier_mismatch", "The code_verifier is missing, or not the one behind the code_challenge.", "Keep the verifier with the state of the same sign-in: two tabs must not share one."),
    ("grant_ended", "What the person allowed has ended: they signed out, withdrew it, or their account changed.", "Send the person through sign-in again."),
    ("refresh_unknown", "The refresh token is not one of this client's.", "Store the whole token of the latest answer, for each person apart."),
    ("refresh_expired", "The refresh token had ended.", "Send the person through sign-in again; the lifetimes are in the organization's settings."),
    ("refresh_reuse", "A refresh token was used again after its successor: all tokens of that sign-in are revoked.", "Store the new refresh token before anything else, and let one process refresh at a time."),
    ("token_not_own", "The client named a token of another client.", "Revoke or ask about own tokens alone."),
    # Proof of possession.
    ("dpop_missing", "There was no DPoP proof where one is demanded.", "Send a DPoP header with each request (RFC 9449)."),
    ("dpop_invalid", "The DPoP proof is not one for this request.", "Sign method, address, time and jti with the key in the header; one proof a request."),
    ("dpop_clock_skew", "The DPoP proof's time does not fit the clock here.", "Synchronise the client's clock."),
    ("dpop_replayed", "The DPoP proof was used before.", "Make a new proof with a new jti for each request, retries included."),
    ("dpop_nonce", "The DPoP proof lacked the server's nonce, or had an old one.", "Send the request again with the nonce of the DPoP-Nonce header; libraries do so by themselves."),
    ("dpop_wrong_key", "The DPoP proof was made with another key than the code or token is bound to.", "Keep the key as long as the tokens that are bound to it."),
    # Devices.
    ("device_code_unknown", "The device code is not one of this client's, or was used.", "Ask for a new one."),
    ("device_code_expired", "Nobody entered the code in time.", "Ask for a new one, and show it."),
    ("device_refused", "The person said no.", "Nothing is broken; the device may ask again when they want it to."),
    ("device_too_fast", "The device asked more often than it may.", "Wait the interval between two requests, and five seconds more after each slow_down."),
    ("device_too_many", "The client has too many device codes open.", "Ask for one when a person wants to sign in, not ahead of time."),
    # What names nothing better.
    ("refused", "The request was refused.", "The answer's error and error_description say why."),
)
# fmt: on

CAUSES: dict[str, Explanation] = {code: Explanation(what, fix) for code, what, fix in _ROWS}

# The cause of a refusal that names none.
OF_ERRORS: dict[str, str] = {
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


def cause_of(error_code: str) -> str:
    """The cause of a refusal that names none."""
    return OF_ERRORS.get(error_code, "refused")


@dataclass(frozen=True, slots=True)
class Difference:
    """``received`` and the ``closest`` of what was expected: alike in ``before`` and ``after``, not between them."""

    closest: str
    before: str
    received: str
    expected: str
    after: str

    @property
    def words(self) -> str:
        """What is different, in words: a slash alone is hard to see."""
        if not self.received:
            return f"“{self.expected}” is missing."
        if not self.expected:
            return f"“{self.received}” is extra."
        return f"“{self.received}” stands where “{self.expected}” should."


def difference(received: str, expected: Iterable[str]) -> Difference | None:
    """The difference from the expected text that is nearest; None when there is none to compare with."""
    found = [_compared(received, text) for text in expected]
    return max(found, key=lambda one: len(one.before) + len(one.after), default=None)


def _compared(received: str, expected: str) -> Difference:
    before = _common(received, expected)
    rest, wanted = received[len(before) :], expected[len(before) :]
    after = _common(rest[::-1], wanted[::-1])[::-1]
    return Difference(expected, before, rest.removesuffix(after), wanted.removesuffix(after), after)


def _common(first: str, second: str) -> str:
    """What both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return "".join(pair[0] for pair in pairs)


# Their values say what a client wants, and open nothing. A challenge is a hash of its verifier.
_HARMLESS = frozenset(
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
_KINDS = {
    "cs": "a client secret",
    "at": "an access token",
    "rt": "a refresh token",
    "ac": "an authorization code",
    "dc": "a device code",
}
MOST = 40
LONGEST_NAME = 64
LONGEST_VALUE = 500


def shown_parameters(sent: Mapping[str, str]) -> dict[str, str]:
    """The parameters as the log of failed requests keeps them; never a secret, code, token, state or nonce."""
    shown = {}
    for name, value in list(sent.items())[:MOST]:
        kept = _shortened(redact(value)) if name in _HARMLESS else _mark(value)
        shown[redact(name[:LONGEST_NAME])] = kept
    return shown


def shortened_text(text: str, longest: int) -> str:
    """The text without secrets, at most so long."""
    text = redact(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}…"


def _mark(value: str) -> str:
    """What stood there: the kind of one of our own secrets, or a length."""
    parsed = parse_token(value)
    if parsed is not None and parsed.kind in _KINDS:
        return f"[{_KINDS[parsed.kind]}, removed]"
    if value.startswith("eyJ"):
        return "[a JWT, removed]"
    return f"[{len(value)} characters, removed]"
