"""The PKCE policy from authorization to token: which clients may do without, and that nobody can remove it (PK-1)."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.models.client import Client
from app.operations.clients.clients import get_client, update_client
from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, VERIFIER, Flow, change_rows, query_of

pytestmark = pytest.mark.either

WITHOUT = {"code_challenge": None, "code_challenge_method": None}
NONCE = "n-0S6_WzA2Mj"
POLICIES = ("required", "required_or_nonce", "public_clients")


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def signed_in(app: Flask, http: FlaskClient, make: Factory, policy: str) -> Flow:
    """A flow in an organization with the policy, whose user is signed in."""
    organization = make.organization(settings={"oauth": FAST_KEYS["oauth"] | {"pkce": policy}})
    client = make.client(organization, trust="first_party")
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


def is_refused_without_challenge(flow: Flow, **changes: str | None) -> bool:
    answer = flow.authorize(**(WITHOUT | changes))
    parameters = query_of(answer) if answer.headers["Location"].startswith("https://") else {}
    return parameters.get("error") == "invalid_request"


@pytest.mark.parametrize(
    ("fields", "nonce", "allowed_by"),
    [
        ({}, None, {"public_clients"}),
        ({}, NONCE, {"public_clients", "required_or_nonce"}),
        ({"require_pkce": True}, NONCE, set()),
        ({"type": "spa", "redirect_uris": [REDIRECT_URI]}, NONCE, set()),
    ],
    ids=["nothing", "nonce", "strict client", "public client"],
)
def test_policy_decides_which_clients_may_omit_pkce(
    signed_in: Flow, policy: str, fields: dict[str, object], nonce: str | None, allowed_by: set[str]
) -> None:
    flow = signed_in.other_client(trust="first_party", **fields)
    is_public = fields.get("type") == "spa"
    headers = {} if is_public else None
    more = {"client_id": flow.client.client_id} if is_public else {}
    assert is_refused_without_challenge(flow, nonce=nonce) is (policy not in allowed_by)
    if policy in allowed_by:
        answer = flow.redeem(flow.code(nonce=nonce, **WITHOUT), headers, code_verifier=None, **more)
        assert answer.status_code == 200, answer.text
    # With PKCE every client gets tokens, whatever the policy.
    answer = flow.redeem(flow.code(nonce=nonce), headers, **more)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("policy", ["public_clients"], indirect=True)
def test_challenge_and_verifier_only_pass_together(signed_in: Flow) -> None:
    """RFC 9700 section 4.8.2: the policy may allow a code without PKCE, but not half of it."""
    unprotected = signed_in.code(nonce=NONCE, **WITHOUT)
    refused = signed_in.redeem(unprotected, code_verifier=VERIFIER)
    assert refused.status_code == 400 and refused.get_json()["error"] == "invalid_grant"
    assert signed_in.redeem(unprotected, code_verifier=None).status_code == 200
    protected = signed_in.code(nonce=NONCE)
    assert signed_in.redeem(protected, code_verifier=None).get_json()["error"] == "invalid_grant"
    assert signed_in.redeem(protected).status_code == 200


@pytest.mark.parametrize("policy", ["required_or_nonce"], indirect=True)
def test_nonce_protects_only_with_an_id_token(signed_in: Flow) -> None:
    assert is_refused_without_challenge(signed_in, nonce=NONCE, scope="email")


@pytest.mark.parametrize("policy", ["required_or_nonce"], indirect=True)
@pytest.mark.parametrize("nonce", ["", " ", "\t", "\u00a0" * 40, "\u200b" * 40, " " * 40, "n", "1234567 "])
def test_nonce_that_can_be_guessed_protects_no_code(signed_in: Flow, nonce: str) -> None:
    """PK-1, OpenID Connect Core section 15.5.2. With PKCE it is returned unchanged."""
    assert is_refused_without_challenge(signed_in, nonce=nonce)
    assert signed_in.redeem(signed_in.code(nonce=nonce)).status_code == 200


@pytest.mark.parametrize("policy", ["public_clients"], indirect=True)
def test_stricter_policy_applies_to_codes_already_issued(signed_in: Flow) -> None:
    code = signed_in.code(nonce=NONCE, **WITHOUT)
    with signed_in.app.app_context():
        system = signed_in.make.system(signed_in.organization)
        update_settings(system, signed_in.organization.slug, {"oauth": {"pkce": "required"}})
    refused = signed_in.redeem(code, code_verifier=None)
    assert refused.get_json()["error"] == "invalid_grant"


@pytest.mark.parametrize("policy", ["public_clients"], indirect=True)
def test_agent_with_a_metadata_document_always_needs_pkce(signed_in: Flow) -> None:
    change_rows(signed_in, Client, source="metadata_document", version=Client.version + 1)
    with signed_in.app.app_context():
        system = signed_in.make.system(signed_in.organization)
        update_client(system, signed_in.client.client_id, {"status": "active", "description": "read again"})
    assert is_refused_without_challenge(signed_in, nonce=NONCE)


@pytest.mark.parametrize("policy", ["required_or_nonce"], indirect=True)
def test_client_shows_whether_it_uses_pkce(signed_in: Flow) -> None:
    def used() -> tuple[bool, bool]:
        with signed_in.app.app_context():
            client = get_client(signed_in.make.system(signed_in.organization), signed_in.client.client_id)
        return client.pkce_used_at is not None, client.pkce_omitted_at is not None

    assert used() == (False, False)
    signed_in.redeem(signed_in.code())
    assert used() == (True, False)
    signed_in.redeem(signed_in.code(nonce=NONCE, **WITHOUT), code_verifier=None)
    assert used() == (True, True)
