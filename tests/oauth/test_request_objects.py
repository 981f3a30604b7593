"""Request objects (RFC 9101) at authorization and pushed: signed by the client, and authoritative."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.factories import Factory
from tests.oauth.conftest import REDIRECT_URI, SCOPES, Flow, location, query_of
from tests.oauth.failure_log import kept
from tests.support.cases import each
from tests.support.signer import Signer, compact, new_key

pytestmark = pytest.mark.either

NOW = int(time.time())


@pytest.fixture
def signing(flow: Flow, signer: Signer) -> Flow:
    """A first-party client with a registered key."""
    return flow.other_client(trust="first_party", redirect_uris=[REDIRECT_URI], jwks=signer.jwks)


def object_of(flow: Flow, signer: Signer, changes: dict[str, Any] | None = None, **jwt: Any) -> str:
    return signer.request_object({**flow.parameters(), **(changes or {})}, flow.issuer, **jwt)


def bring(flow: Flow, request_object: str, **beside: str | None):
    query = {"client_id": flow.client.client_id, "request": request_object} | beside
    sent = {name: value for name, value in query.items() if value is not None}
    return flow.http.get("/oauth/authorize", query_string=sent)


def refusal(flow: Flow, request_object: str) -> str:
    """Return the error; by redirect if the redirect URI was also sent in the query, else on a page."""
    page_error, cause = page_refusal(flow, request=request_object)
    assert cause in {"request_object_invalid", "request_object_refused"}
    query = query_of(bring(flow, request_object, redirect_uri=REDIRECT_URI, state="outer"))
    assert query["state"] == "outer" and query["iss"] == flow.issuer and "code" not in query
    answer = flow.http.post("/oauth/par", data={"request": request_object}, headers=flow.client.basic)
    assert (answer.status_code, answer.get_json()["error"]) == (400, query["error"])
    assert page_error == query["error"]
    return page_error


def page_refusal(flow: Flow, **sent: str) -> tuple[str, str]:
    """Return error and logged cause of a request that has no redirect URI outside of the object."""
    page = flow.http.get("/oauth/authorize", query_string={"client_id": flow.client.client_id} | sent)
    assert page.status_code == 400 and "Location" not in page.headers, page.text
    [entry] = [one for one in kept(flow) if one.request_id == page.headers["X-Request-Id"]]
    assert f'<code id="error-code">{entry.error}</code>' in page.text
    return entry.error, entry.cause


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"])
def test_signed_request_returns_a_code(flow: Flow, algorithm: str) -> None:
    signer = Signer(algorithm)
    signing = flow.other_client(trust="first_party", redirect_uris=[REDIRECT_URI], jwks=signer.jwks)
    query = query_of(bring(signing, object_of(signing, signer)))
    assert query["state"] == "s" and query["iss"] == signing.issuer
    assert signing.redeem(query["code"]).status_code == 200


def test_request_object_may_be_pushed(signing: Flow, signer: Signer) -> None:
    """RFC 9126 section 3: other form parameters are ignored."""
    fields = {"request": object_of(signing, signer), "state": "outer", "scope": "openid email"}
    pushed = signing.http.post("/oauth/par", data=fields, headers=signing.client.basic)
    assert pushed.status_code == 201, pushed.text
    asked = {"client_id": signing.client.client_id, "request_uri": pushed.get_json()["request_uri"]}
    query = query_of(signing.http.get("/oauth/authorize", query_string=asked))
    assert query["state"] == "s"
    assert signing.redeem(query["code"]).get_json()["scope"] == "openid profile"


def test_request_object_may_be_posted(signing: Flow, signer: Signer) -> None:
    sent = {"client_id": signing.client.client_id, "request": object_of(signing, signer)}
    assert "code" in query_of(signing.http.post("/oauth/authorize", data=sent))


def test_parameters_outside_the_object_are_ignored(signing: Flow, signer: Signer) -> None:
    """RFC 9101 section 6.3: an outer state is not returned."""
    request_object = object_of(signing, signer, {"state": None, "nonce": "inner"})
    answer = bring(
        signing, request_object, state="outer", redirect_uri="https://evil.example/", scope="openid email"
    )
    assert location(answer).startswith(REDIRECT_URI)
    query = query_of(answer)
    assert "state" not in query
    assert signing.redeem(query["code"]).get_json()["scope"] == "openid profile"


def test_json_numbers_and_objects_are_accepted(signing: Flow, signer: Signer) -> None:
    """The same stored request as from a query: max_age a number, claims an object, resources a list."""
    changes = {"max_age": 3600, "claims": {"userinfo": {"email": None}}, "resource": ["https://api.example/"]}
    client = signing.other_client(
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
        jwks=signer.jwks,
        resources=["https://api.example/"],
    )
    assert "code" in query_of(bring(client, object_of(client, signer, changes | {"of_nobody": [1]})))
    for wrong in ({"max_age": [1]}, {"scope": ["openid"]}, {"state": True}):
        assert refusal(client, object_of(client, signer, wrong)) == "invalid_request_object"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scope": "nothing"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
)
def test_error_goes_to_the_redirect_uri_of_the_object(
    signing: Flow, signer: Signer, changes: dict[str, Any], error: str
) -> None:
    query = query_of(bring(signing, object_of(signing, signer, changes)))
    assert (query["error"], query["state"]) == (error, "s")


def test_redirect_uri_in_the_object_is_validated(signing: Flow, signer: Signer) -> None:
    """RU-1: signed or not."""
    answer = bring(signing, object_of(signing, signer, {"redirect_uri": "https://evil.example/"}))
    assert answer.status_code == 400 and "Location" not in answer.headers


@each(
    "spoilt",
    [
        {"iss": "cli_other"},
        {"iss": None},
        {"aud": "https://other.example"},
        {"aud": None},
        {"aud": []},
        {"aud": {"issuer": True}},
        {"client_id": "cli_other"},
        {"client_id": None},
        {"exp": NOW - 60},
        {"exp": "soon"},
        {"nbf": NOW + 86_400},
        {"iat": NOW + 86_400},
        {"request": "a.b.c"},
        {"request_uri": "https://orchard.example/"},
        {"header": {"typ": "dpop+jwt"}},
        {"header": {"typ": "client-authentication+jwt"}},
        {"header": {"crit": ["exp"]}},
    ],
)
def test_object_with_wrong_audience_or_time_is_rejected(
    signing: Flow, signer: Signer, spoilt: dict[str, Any]
) -> None:
    assert refusal(signing, object_of(signing, signer, **spoilt)) == "invalid_request_object"


def test_only_the_clients_registered_keys_are_accepted(signing: Flow, signer: Signer) -> None:
    """KY-4: no key from the header, no shared secret."""
    stranger = Signer(key=new_key())
    shown = {"header": {"jwk": stranger.jwk, "jku": "https://evil.example/keys"}}
    good = object_of(signing, signer)
    head, payload, _ = good.split(".")
    for wrong in (
        object_of(signing, stranger),
        object_of(signing, stranger, **shown),
        f"{head}.{payload}.AAAA",
        f"{head}.{payload}.",
        "x",
        "x" * 30_000,
    ):
        assert refusal(signing, wrong) == "invalid_request_object"
    without = signing.other_client(trust="first_party", redirect_uris=[REDIRECT_URI])
    assert refusal(without, object_of(without, signer)) == "invalid_request_object"


@each(
    ("sent", "error", "cause"),
    [
        ({"request_uri": "https://orchard.example/r"}, "request_uri_not_supported", "request_object_refused"),
        (
            {"request_uri": "urn:ietf:params:oauth:request_uri:x", "request": "a.b.c"},
            "invalid_request",
            "request_object_refused",
        ),
        ({"request": "a.b.c", "response_type": "code"}, "invalid_request_object", "request_object_invalid"),
        ({"response_type": "code"}, "invalid_request", "redirect_uri_missing"),
    ],
)
def test_fault_of_the_object_is_named_without_a_redirect_uri(
    signing: Flow, sent: dict[str, str], error: str, cause: str
) -> None:
    """RFC 9101: the redirect URI may be in the object alone, where it is not read if the object is rejected."""
    assert page_refusal(signing, **sent) == (error, cause)


def test_encrypted_object_is_not_supported(signing: Flow) -> None:
    assert refusal(signing, "a.b.c.d.e") == "request_not_supported"


def test_unsigned_object_is_rejected(signing: Flow, signer: Signer) -> None:
    """KY-4: for a client that must sign, it means that something removed the signature."""
    plain = signing.other_client(trust="first_party", redirect_uris=[REDIRECT_URI])
    for flow in (plain, signing):
        unsigned = compact({"alg": "none"}, flow.parameters(), None)
        assert refusal(flow, unsigned) == "request_not_supported"
    fields = {"trust": "first_party", "redirect_uris": [REDIRECT_URI], "jwks": signer.jwks}
    for promise in ({"request_object_signing_alg": "ES256"}, {"require_signed_request_object": True}):
        flow = signing.other_client(**fields, **promise)
        unsigned = compact({"alg": "none"}, flow.parameters(), None)
        assert refusal(flow, unsigned) == "invalid_request_object"


def test_client_assertion_is_not_a_request_object(signing: Flow, signer: Signer) -> None:
    """A JWT has one purpose."""
    claims = {name: value for name, value in signing.parameters().items() if name != "client_id"}
    assertion = signer.assertion(signing.client.client_id, signing.issuer, **claims)
    assert refusal(signing, assertion) == "invalid_request_object"


def test_request_and_request_uri_cannot_be_combined(signing: Flow, signer: Signer) -> None:
    uri = "urn:ietf:params:oauth:request_uri:x"
    query = query_of(bring(signing, object_of(signing, signer), request_uri=uri, redirect_uri=REDIRECT_URI))
    assert query["error"] == "invalid_request"


def test_plain_request_is_rejected_where_signing_is_required(flow: Flow, signer: Signer) -> None:
    demanding = flow.other_client(
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
        jwks=signer.jwks,
        require_signed_request_object=True,
    )
    assert query_of(demanding.authorize())["error"] == "invalid_request"
    plain = flow.http.post("/oauth/par", data=demanding.parameters(), headers=demanding.client.basic)
    assert (plain.status_code, plain.get_json()["error"]) == (400, "invalid_request")
    assert "code" in query_of(bring(demanding, object_of(demanding, signer)))


def test_both_names_of_the_registered_algorithm_are_accepted(flow: Flow) -> None:
    signer = Signer("EdDSA")
    fields = {"trust": "first_party", "redirect_uris": [REDIRECT_URI], "jwks": signer.jwks}
    client = flow.other_client(**fields, request_object_signing_alg="Ed25519")
    for name in ("EdDSA", "Ed25519"):
        assert "code" in query_of(bring(client, object_of(client, Signer(name, key=signer.key))))


def test_only_the_registered_algorithm_is_accepted(flow: Flow) -> None:
    rsa = Signer("RS256")
    client = flow.other_client(
        trust="first_party", redirect_uris=[REDIRECT_URI], jwks=rsa.jwks, request_object_signing_alg="PS256"
    )
    assert refusal(client, object_of(client, rsa)) == "invalid_request_object"
    assert "code" in query_of(bring(client, object_of(client, Signer("PS256", key=rsa.key))))


def test_fapi_client_must_limit_the_object_lifetime(flow: Flow, make: Factory, signer: Signer) -> None:
    """FAPI 2.0 Message Signing: nbf and exp, at most an hour apart, and no RS256."""
    client = flow.other_client(
        security_profile="fapi2", trust="first_party", redirect_uris=[REDIRECT_URI], **signer.registration
    )

    def pushed(key: Signer = signer, **jwt: Any):
        fields = signer.fields(client.client.client_id, client.issuer)
        return flow.http.post("/oauth/par", data=fields | {"request": object_of(client, key, **jwt)})

    assert pushed().status_code == 201, pushed().text
    now = int(time.time())  # Use the current time; the collection of a long run is minutes old.
    wrong = ({"nbf": None}, {"exp": None}, {"nbf": now - 3700}, {"exp": now + 3700})
    for answer in (pushed(**changes) for changes in wrong):
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request_object")
    assert pushed(Signer("RS256", key_id=None)).status_code == 400


def test_query_form_object_and_push_store_the_same_request(asking: Flow, signer: Signer, database) -> None:
    """Each parameter is stored alike."""
    client = asking.other_client(redirect_uris=[REDIRECT_URI], jwks=signer.jwks, scopes=SCOPES)
    parameters = client.parameters(nonce="n", max_age="3600", login_hint="ada@example.com")
    signed = signer.request_object(parameters | {"max_age": 3600}, client.issuer)
    own = {"client_id": client.client.client_id}
    asking.http.get("/oauth/authorize", query_string=parameters)
    asking.http.post("/oauth/authorize", data=parameters)
    asking.http.get("/oauth/authorize", query_string=own | {"request": signed})
    for fields in (parameters, {"request": signed}):
        answer = asking.http.post("/oauth/par", data=fields, headers=client.client.basic)
        asking.http.get(
            "/oauth/authorize", query_string=own | {"request_uri": answer.get_json()["request_uri"]}
        )
    rows = database.query("SELECT parameters FROM authorization_requests")
    assert len(rows) == 5 and len({row[0] for row in rows}) == 1
