"""Explain a rejected request: the step of the flow, a verdict on each parameter, and what to send instead.

Verdicts compare with the client's present registration. A removed value was not looked at, so it has none.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from app.rules.audit.failed_requests import closest_difference
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import SECRET_METHODS
from app.rules.languages.translation import lazy_gettext as _

DONE, STOPPED, PENDING = "done", "stopped", "pending"
OK, BAD, UNKNOWN = "ok", "bad", "unknown"

_CODE_FLOW = (_("Authorize"), _("Sign in"), _("Consent"), _("Token"), _("API"))
_DEVICE_FLOW = (_("Device code"), _("User code"), _("Consent"), _("Token"), _("API"))
_MACHINE_FLOW = (_("Token"), _("API"))
# The flow and its step, by endpoint and for the token endpoint by grant type.
_FLOWS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "authorize": (_CODE_FLOW, _("Authorize")),
    "par": ((_("Push"), *_CODE_FLOW[:4]), _("Push")),
    "device_authorization": (_DEVICE_FLOW, _("Device code")),
    "authorization_code": (_CODE_FLOW, _("Token")),
    "refresh_token": ((_("Sign in"), _("Consent"), _("Token"), _("Refresh"), _("API")), _("Refresh")),
    "urn:ietf:params:oauth:grant-type:device_code": (_DEVICE_FLOW, _("Token")),
    "client_credentials": (_MACHINE_FLOW, _("Token")),
    "urn:ietf:params:oauth:grant-type:token-exchange": (
        (_("Token"), _("API"), _("Exchange"), _("Next API")),
        _("Exchange"),
    ),
    "token": (_MACHINE_FLOW, _("Token")),
    "userinfo": (_CODE_FLOW, _("API")),
    "introspect": ((_("Token"), _("API"), _("Introspect")), _("Introspect")),
    "revoke": ((_("Token"), _("API"), _("Revoke")), _("Revoke")),
    "logout": ((_("Sign in"), _("Token"), _("Sign out"), _("Return")), _("Return")),
    "register": ((_("Register"), *_CODE_FLOW[:4]), _("Register")),
}
# The step that stopped the request, where it is not that of the endpoint.
_STOPPING_STEPS = {
    "login_required": "Sign in",
    "consent_required": "Consent",
    "interaction_required": "Consent",
    "user_refused": "Consent",
    "device_refused": "Consent",
}
# The last step before the request that is known to be done. Other causes say nothing about the steps before.
_KNOWN_STEPS: Mapping[str, str] = {
    **dict.fromkeys(("device_too_fast", "device_code_expired"), "Device code"),
    **dict.fromkeys(
        (
            *("code_reused", "code_expired", "redirect_uri_mismatch"),
            *("pkce_missing", "verifier_mismatch", "verifier_malformed", "verifier_unexpected"),
            "dpop_wrong_key",
            *("grant_ended", "refresh_expired", "refresh_reuse", "scope_beyond_token"),
            *("token_not_own", "introspection_not_allowed"),
        ),
        "Token",
    ),
}
# Without a redirect URI that matches, the user is not sent back to the client.
_SHOWN_TO_USER = frozenset({"redirect_uri_missing", "redirect_uri_not_registered"})
# The parameters that a cause is about.
_CAUSES_OF_PARAMETERS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("redirect_uri",): ("redirect_uri_missing", "redirect_uri_not_registered", "redirect_uri_mismatch"),
    ("post_logout_redirect_uri",): ("post_logout_redirect_uri_not_registered",),
    ("response_type",): ("response_type_unsupported",),
    ("code_challenge", "code_challenge_method"): (
        "pkce_missing",
        "pkce_or_nonce_missing",
        "pkce_method_unsupported",
    ),
    ("request",): ("request_object_invalid", "request_object_refused"),
    ("request_uri",): ("par_required", "par_unknown"),
    ("prompt",): ("login_required", "consent_required", "interaction_required"),
    ("grant_type",): ("grant_type_unsupported", "grant_type_not_allowed"),
    ("scope",): ("scope_not_allowed", "scope_beyond_token"),
    ("scope", "resource"): ("access_not_granted",),
    ("resource",): ("resource_not_allowed",),
    ("code",): ("code_unknown", "code_reused", "code_expired"),
    ("code_verifier",): ("verifier_mismatch", "verifier_malformed", "verifier_unexpected"),
    ("refresh_token",): ("refresh_unknown", "refresh_expired", "refresh_reuse"),
    ("code", "refresh_token", "device_code"): ("grant_ended",),
    ("device_code",): ("device_code_unknown", "device_code_expired"),
    ("token",): ("token_not_own", "introspection_not_allowed"),
    ("client_secret",): (
        "secret_unknown",
        "secret_expired",
        "secret_revoked",
        "secret_blocked",
        "auth_method_mismatch",
    ),
    ("client_assertion",): (
        "client_assertion_audience",
        "client_assertion_clock_skew",
        "client_assertion_malformed",
        "client_assertion_replayed",
        "client_assertion_signature",
    ),
}
_AT_FAULT = {cause: names for names, causes in _CAUSES_OF_PARAMETERS.items() for cause in causes}
# These parameters are shown although they were not sent, since their absence is the cause.
_REQUIRED = frozenset({"pkce_missing", "pkce_or_nonce_missing", "redirect_uri_missing", "par_required"})
_PURPOSES = {
    "response_type": _("asks for a one-time code"),
    "client_id": _("names the client"),
    "redirect_uri": _("where the user returns"),
    "post_logout_redirect_uri": _("where the user returns after signing out"),
    "scope": _("what the client wants to access"),
    "state": _("comes back unchanged"),
    "nonce": _("comes back in the ID token"),
    "code_challenge": _("hash of the code verifier"),
    "code_challenge_method": _("how the hash was made"),
    "code_verifier": _("proves who started the sign-in"),
    "code": _("the one-time code"),
    "grant_type": _("how the token is obtained"),
    "refresh_token": _("renews the tokens"),
    "client_secret": _("authenticates the client"),
    "client_assertion": _("authenticates the client"),
    "client_assertion_type": _("the kind of assertion"),
    "prompt": _("which pages the user sees"),
    "resource": _("the API that the token is for"),
    "token": _("the token in question"),
    "request_uri": _("names the pushed request"),
}
_PKCE = """# A new random code_verifier for each sign-in, kept with the state
code_challenge=BASE64URL(SHA256(code_verifier))
code_challenge_method=S256"""


class FlowStep(Struct, frozen=True):
    """One step of the flow. ``state`` is DONE, STOPPED, PENDING or, before the stop, UNKNOWN."""

    label: str
    state: str


class Verdict(Struct, frozen=True):
    """One parameter as it was sent, with a verdict and a note. ``value`` is None if it was not sent."""

    name: str
    value: str | None
    verdict: str
    note: str


def find_consequence(endpoint: str, cause: str) -> str | None:
    """Return a sentence about what the user saw or what the client missed, or None if there is nothing to add."""
    if endpoint == "authorize" and cause in _SHOWN_TO_USER:
        return _("The user saw an error page instead of the sign-in.")
    return _("The client got no token.") if endpoint == "token" else None


def flow_steps(endpoint: str, grant_type: str | None, cause: str) -> tuple[FlowStep, ...]:
    """Return the steps of the flow that the request was part of, and which one it stopped at."""
    key = grant_type if endpoint == "token" and grant_type in _FLOWS else endpoint
    labels, stopped = _FLOWS.get(key or "", ((endpoint.capitalize(),), endpoint.capitalize()))
    known = labels.index(_KNOWN_STEPS[cause]) if _KNOWN_STEPS.get(cause) in labels else -1
    if _STOPPING_STEPS.get(cause) in labels:
        stopped = _STOPPING_STEPS[cause]
        known = labels.index(stopped)
    at = labels.index(stopped)
    return tuple(FlowStep(label, _state(number, at, known)) for number, label in enumerate(labels))


def _state(number: int, stopped: int, known: int) -> str:
    if number == stopped:
        return STOPPED
    if number > stopped:
        return PENDING
    return DONE if number <= known else UNKNOWN


def check_parameters(
    cause: str,
    parameters: Mapping[str, str],
    received: str | None,
    expected: Sequence[str],
    client: ClientMetadata | None,
) -> tuple[Verdict, ...]:
    """Return a verdict for each parameter that was sent, and for each one whose absence is the cause."""
    at_fault = _AT_FAULT.get(cause, ())
    found = [_check(name, value, name in at_fault, received, client) for name, value in parameters.items()]
    required = at_fault if cause in _REQUIRED else ()
    if cause == "parameter_missing":
        required = tuple(text.partition("=")[0] for text in expected)
    found += [Verdict(name, None, BAD, _("missing")) for name in required if name not in parameters]
    return tuple(found)


# Parameters of the protocol that are secret or about the user: the command takes them from variables of the shell.
_VARIABLES = frozenset(
    {"client_secret", "client_assertion", "code", "code_verifier", "refresh_token", "token", "device_code"}
    | {"subject_token", "actor_token", "request", "id_token_hint", "login_hint", "claims", "state", "nonce"}
)


def is_removed(value: str) -> bool:
    """Return whether the log has a description in place of a secret value."""
    return value.startswith("[") and value.endswith(" removed]")


def _check(
    name: str, value: str, is_at_fault: bool, received: str | None, client: ClientMetadata | None
) -> Verdict:
    purpose = _PURPOSES.get(name, "")
    if is_at_fault:
        return Verdict(name, value, BAD, _fault(name, value, received))
    if is_removed(value) or client is None:
        return Verdict(name, value, UNKNOWN, purpose)
    problem = _problem(name, value, client)
    if problem is None:
        return Verdict(name, value, OK if name in _CHECKED else UNKNOWN, purpose)
    return Verdict(name, value, BAD, problem)


def _fault(name: str, value: str, received: str | None) -> str:
    if name == "scope" and received and received != value:
        return _("not allowed: %(received)s", received=received)
    return {
        "redirect_uri": _("not the expected one"),
        "post_logout_redirect_uri": _("not registered"),
        "grant_type": _("not allowed"),
        "scope": _("not allowed"),
        "resource": _("not allowed"),
    }.get(name, _("rejected"))


_CHECKED = frozenset(
    {
        "response_type",
        "client_id",
        "redirect_uri",
        "post_logout_redirect_uri",
        "scope",
        "code_challenge",
        "code_challenge_method",
        "grant_type",
    }
)


def _problem(name: str, value: str, client: ClientMetadata) -> str | None:
    """Return what is wrong with a value by the client's registration, or None."""
    if name == "response_type" and value != "code":
        return _("must be code")
    if name == "redirect_uri" and value not in client.redirect_uris and "127.0.0.1" not in value:
        return _("not registered")
    if name == "post_logout_redirect_uri" and value not in client.post_logout_redirect_uris:
        return _("not registered")
    if name == "scope":
        unknown = [scope for scope in value.split() if scope not in client.scopes]
        return _("not registered: %(scopes)s", scopes=" ".join(unknown)) if unknown else None
    if name == "code_challenge" and len(value) != 43:
        return _("must have 43 characters")
    if name == "code_challenge_method" and value != "S256":
        return _("must be S256")
    if name == "grant_type" and value not in client.grant_types:
        return _("not registered")
    return None


def find_snippet(
    cause: str, received: str | None, expected: Sequence[str], client: ClientMetadata | None
) -> str | None:
    """Return what the app should send or configure instead, as lines to copy, or None if words must do."""
    if cause in {"pkce_missing", "pkce_or_nonce_missing", "pkce_method_unsupported"}:
        return _PKCE
    if cause.startswith("secret_"):
        return "CLIENT_SECRET=gth_cs_…"
    if cause in {"auth_method_mismatch", "credentials_missing"} and client is not None:
        return f"token_endpoint_auth_method={client.token_endpoint_auth_method}"
    if cause in {"scope_not_allowed", "scope_beyond_token"} and expected:
        return f"scope={' '.join(expected)}"
    names = _AT_FAULT.get(cause, ())
    if len(names) == 1 and expected and names[0] in {
        "redirect_uri", "post_logout_redirect_uri", "response_type", "resource",
    }:  # fmt: skip
        closest = closest_difference(received, expected) if received else None
        return f"{names[0]}={closest.closest if closest else expected[0]}"
    if cause == "wrong_organization" and expected:
        return f"issuer={expected[0]}"
    return None


def curl_command(
    url: str,
    method: str,
    endpoint: str,
    cause: str,
    parameters: Mapping[str, str],
    client_id: str,
    client: ClientMetadata | None,
) -> str:
    """Return the request as a curl command, with shell variables in place of removed secrets.

    A client that sent no secret in the body authenticated by the Authorization header, which the log does not keep.
    """
    if method == "GET":
        shown = [curl_parameter(name, value) for name, value in parameters.items() if not is_removed(value)]
        return " \\\n  ".join([f"curl -i -G {shlex.quote(url)}", *shown])
    lines = [f"curl -i {shlex.quote(url)}"]
    if endpoint == "userinfo":
        lines.append('-H "Authorization: Bearer $ACCESS_TOKEN"')
    elif _uses_header(endpoint, cause, parameters, client):
        lines.append(f'-u "{client_id}:$CLIENT_SECRET"')
    for name, value in parameters.items():
        is_variable = is_removed(value) and name in _VARIABLES
        lines.append(
            f'--data-urlencode "{name}=${name.upper()}"' if is_variable else curl_parameter(name, value)
        )
    return " \\\n  ".join(lines)


def curl_parameter(name: str, value: str) -> str:
    """Return the option of one parameter. Control characters are encoded: pasted, they could end the quotation."""
    if f"{name}{value}".isprintable():
        return f"--data-urlencode {shlex.quote(f'{name}={value}')}"
    return f"-d {shlex.quote(f'{quote(name)}={quote(value)}')}"


def _uses_header(
    endpoint: str, cause: str, parameters: Mapping[str, str], client: ClientMetadata | None
) -> bool:
    return (
        client is not None
        and client.token_endpoint_auth_method in SECRET_METHODS
        and endpoint in {"token", "par", "introspect", "revoke", "device_authorization"}
        and cause != "credentials_missing"
        and not {"client_secret", "client_assertion"} & parameters.keys()
    )
