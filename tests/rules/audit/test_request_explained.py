"""Where a request stopped, verdicts on its parameters, what to send instead, and its curl command."""

from __future__ import annotations

from app.rules.audit.failed_requests import CAUSES
from app.rules.audit.request_explained import (
    BAD,
    OK,
    STOPPED,
    UNKNOWN,
    check_parameters,
    curl_command,
    find_consequence,
    find_snippet,
    flow_steps,
)
from app.rules.audit.request_fixes import FIXES, propose_fix
from app.rules.clients.client_metadata import ClientMetadata
from tests.support.cases import each

CLIENT = ClientMetadata(
    name="Orchard",
    type="web",
    redirect_uris=("https://orchard.example/cb",),
    scopes=("openid",),
    grant_types=("authorization_code",),
    token_endpoint_auth_method="client_secret_basic",
)


DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@each(
    ("endpoint", "grant_type", "cause", "stopped", "unknown"),
    [
        ("authorize", None, "redirect_uri_not_registered", "Authorize", []),
        ("authorize", None, "login_required", "Sign in", []),
        ("authorize", None, "user_refused", "Consent", []),
        ("par", None, "scope_not_allowed", "Push", []),
        ("par", None, "client_blocked", "Push", []),
        ("token", "authorization_code", "code_expired", "Token", []),
        ("token", "authorization_code", "secret_unknown", "Token", ["Authorize", "Sign in", "Consent"]),
        ("token", "refresh_token", "refresh_reuse", "Refresh", []),
        ("token", "client_credentials", "secret_unknown", "Token", []),
        ("token", "made_up", "grant_type_unsupported", "Token", []),
        # Only the device has been there: nobody has to have entered the code.
        ("token", DEVICE, "device_too_fast", "Token", ["User code", "Consent"]),
        ("token", DEVICE, "device_code_expired", "Token", ["User code", "Consent"]),
        ("token", DEVICE, "device_code_unknown", "Token", ["Device code", "User code", "Consent"]),
        ("token", DEVICE, "device_refused", "Consent", []),
        ("introspect", None, "introspection_not_allowed", "Introspect", ["API"]),
        ("elsewhere", None, "refused", "Elsewhere", []),
    ],
)
def test_flow_stops_at_the_step_of_the_request_and_claims_only_what_is_known(
    endpoint: str, grant_type: str | None, cause: str, stopped: str, unknown: list[str]
) -> None:
    steps = flow_steps(endpoint, grant_type, cause)
    assert [step.label for step in steps if step.state == STOPPED] == [stopped]
    assert [step.label for step in steps if step.state == UNKNOWN] == unknown


@each(
    ("endpoint", "cause", "expected"),
    [
        ("authorize", "redirect_uri_not_registered", "The user saw an error page instead of the sign-in."),
        # The user returned to the client with the error.
        ("authorize", "scope_not_allowed", None),
        ("token", "redirect_uri_missing", "The client got no token."),
        ("logout", "post_logout_redirect_uri_not_registered", None),
    ],
)
def test_consequence_depends_on_where_the_request_failed(
    endpoint: str, cause: str, expected: str | None
) -> None:
    assert find_consequence(endpoint, cause) == expected


def test_parameters_have_verdicts() -> None:
    sent = {
        "response_type": "code",
        "redirect_uri": "https://orchard.example/cb/",
        "scope": "openid email",
        "state": "[9 characters, removed]",
    }
    found = check_parameters(
        "redirect_uri_not_registered", sent, sent["redirect_uri"], CLIENT.redirect_uris, CLIENT
    )
    verdicts = {one.name: one.verdict for one in found}
    assert verdicts == {"response_type": OK, "redirect_uri": BAD, "scope": BAD, "state": UNKNOWN}


@each(
    ("cause", "expected", "missing"),
    [
        ("pkce_missing", (), ["code_challenge", "code_challenge_method"]),
        ("parameter_missing", ("response_type=code",), ["response_type"]),
    ],
)
def test_missing_parameters_are_listed(cause: str, expected: tuple[str, ...], missing: list[str]) -> None:
    found = check_parameters(cause, {}, None, expected, CLIENT)
    assert [(one.name, one.value, one.verdict) for one in found] == [(name, None, BAD) for name in missing]


def test_snippet_is_the_closest_expected_value() -> None:
    expected = ("https://other.example/", "https://orchard.example/cb")
    snippet = find_snippet("redirect_uri_not_registered", "https://orchard.example/cb/", expected, CLIENT)
    assert snippet == "redirect_uri=https://orchard.example/cb"
    assert find_snippet("code_expired", None, (), CLIENT) is None


def curl(cause: str, parameters: dict[str, str], method: str = "POST", endpoint: str = "token") -> str:
    return curl_command("https://id.example/oauth/x", method, endpoint, cause, parameters, "cli_1", CLIENT)


def test_curl_authenticates_by_the_header_unless_the_body_does() -> None:
    assert '-u "cli_1:$CLIENT_SECRET"' in curl("code_expired", {"grant_type": "authorization_code"})
    in_body = curl("secret_unknown", {"client_secret": "[a client secret, removed]"})
    assert "-u " not in in_body and '"client_secret=$CLIENT_SECRET"' in in_body
    assert "-u " not in curl("credentials_missing", {})
    assert "-u " not in curl("scope_not_allowed", {}, "GET", "authorize")


def test_curl_takes_what_the_log_removed_from_variables() -> None:
    """The placeholder of a parameter that the endpoint reads would fail with another error than the request did."""
    removed = dict.fromkeys(("claims", "login_hint", "request"), "[9 characters, removed]")
    shown = curl("scope_not_allowed", removed, endpoint="par")
    assert '"claims=$CLAIMS"' in shown and '"login_hint=$LOGIN_HINT"' in shown and "removed" not in shown


def test_curl_quotes_names_and_values_of_strangers() -> None:
    hostile = curl("refused", {'x";rm -rf ~;"': "[9 characters, removed]", "scope": "'; rm -rf ~"})
    assert "--data-urlencode 'x\";rm -rf ~;\"=[9 characters, removed]'" in hostile
    assert """'scope='"'"'; rm -rf ~'""" in hostile


def test_every_fix_is_of_a_known_cause_and_offered_once() -> None:
    assert FIXES.keys() <= CAUSES.keys() and len(FIXES) >= 10
    assert propose_fix("redirect_uri_not_registered", CLIENT, CLIENT.redirect_uris[0]) is None
    assert propose_fix("scope_not_allowed", CLIENT, "openid") is None
    assert propose_fix("client_disabled", CLIENT, None) is None


@each(
    ("cause", "received"),
    [
        ("scope_not_allowed", "users:write"),
        ("auth_method_mismatch", "none"),
        ("auth_method_mismatch", "private_key_jwt"),
        ("redirect_uri_not_registered", None),
        ("code_expired", None),
    ],
)
def test_nothing_unsafe_is_proposed(cause: str, received: str | None) -> None:
    assert propose_fix(cause, CLIENT, received) is None
