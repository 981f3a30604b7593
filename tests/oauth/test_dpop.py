"""DPoP at the token endpoint: tokens are bound to the key of the proof (RFC 9449, DC-6)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.models.token import DeviceCode
from app.operations.clients import dpop_proofs
from app.operations.clients.clients import update_client
from app.operations.organizations.settings import update_settings
from tests.oauth.conftest import (
    REDIRECT_URI,
    SCOPES,
    Flow,
    change_rows,
    clock_ago,
    on_another_worker,
    query_of,
)
from tests.oauth.device import Device
from tests.oauth.failure_log import only
from tests.support.dpop import Prover

pytestmark = pytest.mark.either

TOKEN_URL = "http://localhost/oauth/token"
ALL = " ".join(SCOPES)


@pytest.fixture
def spa(flow: Flow) -> Flow:
    """A public client."""
    return flow.other_client(type="spa", redirect_uris=[REDIRECT_URI], trust="first_party")


def proven(flow: Flow, prover: Prover, url: str = TOKEN_URL, **changes: Any) -> dict[str, str]:
    """Return the headers of a token request with a proof; a public client sends nothing else."""
    own = {} if flow.client.registered.secret is None else flow.client.basic
    return own | prover.headers("POST", url, **changes)


def identity(flow: Flow) -> dict[str, str]:
    return {"client_id": flow.client.client_id} if flow.client.registered.secret is None else {}


def redeem(flow: Flow, prover: Prover, **asked: str) -> dict[str, Any]:
    """Return the tokens of a flow whose redemption carries a proof."""
    answer = flow.redeem(flow.code(scope=ALL, **asked), proven(flow, prover), **identity(flow))
    assert answer.status_code == 200, answer.text
    return dict(answer.get_json())


def refused(answer: TestResponse, error: str = "invalid_dpop_proof") -> bool:
    assert answer.get_json().get("error") == error, answer.text
    return answer.status_code == 400


def description_of(answer: TestResponse) -> str:
    return str(answer.get_json()["error_description"])


def test_code_flow_binds_the_access_token(flow: Flow, prover: Prover) -> None:
    """RFC 9449 sections 5 and 6.2."""
    tokens = redeem(flow, prover)
    assert tokens["token_type"] == "DPoP"
    told = flow.introspect(tokens["access_token"])
    assert (told["token_type"], told["cnf"]) == ("DPoP", {"jkt": prover.jkt})


def test_request_without_a_proof_gets_bearer_tokens(flow: Flow) -> None:
    tokens = flow.tokens()
    assert tokens["token_type"] == "Bearer"
    told = flow.introspect(tokens["access_token"])
    assert told["token_type"] == "Bearer" and "cnf" not in told


def test_client_credentials_tokens_are_bound(flow: Flow, prover: Prover) -> None:
    machine = flow.other_client(type="machine", scopes=["reports:read"], redirect_uris=[])
    answer = machine.token(proven(machine, prover), grant_type="client_credentials")
    assert answer.get_json()["token_type"] == "DPoP"
    assert machine.introspect(answer.get_json()["access_token"])["cnf"] == {"jkt": prover.jkt}


def test_jwt_access_token_contains_the_key_thumbprint(flow: Flow, prover: Prover) -> None:
    """RFC 9449 section 6.1."""
    client = flow.other_client(access_token_format="jwt", trust="first_party", redirect_uris=[REDIRECT_URI])
    payload = redeem(client, prover)["access_token"].split(".")[1]
    claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["cnf"] == {"jkt": prover.jkt}


def test_proof_must_name_the_url_that_was_called(flow: Flow, prover: Prover) -> None:
    """The endpoint has two URLs."""
    path = f"/organizations/{flow.organization.slug}/oauth/token"
    good = flow.redeem(flow.code(), proven(flow, prover, f"http://localhost{path}"), path=path)
    assert good.status_code == 200
    assert refused(flow.redeem(flow.code(), proven(flow, prover), path=path))


def test_proof_is_accepted_only_once(flow: Flow, prover: Prover) -> None:
    """DC-6: the jti; a rejected proof does not consume the code."""
    headers, code = proven(flow, prover), flow.code()
    assert flow.redeem(flow.code(), headers).status_code == 200
    assert refused(flow.redeem(code, headers))
    assert flow.redeem(code, proven(flow, prover)).status_code == 200


def test_proof_of_a_rejected_request_is_consumed(flow: Flow, prover: Prover) -> None:
    headers = proven(flow, prover)
    assert refused(flow.redeem("gth_ac_unknown", headers), "invalid_grant")
    assert refused(flow.redeem(flow.code(), headers))


def test_two_keys_may_use_the_same_jti(flow: Flow, prover: Prover) -> None:
    other = Prover()
    for mine in (prover, other):
        assert flow.redeem(flow.code(), proven(flow, mine, jti="one")).status_code == 200


@pytest.mark.parametrize(
    "changes", [{"htu": "http://localhost/oauth/revoke"}, {"htm": "GET"}, {"iat": 1}], ids=str
)
def test_invalid_proof_is_rejected(flow: Flow, prover: Prover, changes: dict[str, Any]) -> None:
    """Proof validation is tested in ``tests/rules/clients/test_dpop``; this tests the error response."""
    assert refused(flow.redeem(flow.code(), proven(flow, prover, **changes)))


def test_two_proofs_are_rejected(flow: Flow, prover: Prover) -> None:
    """The server joins the headers, as ``tests/journeys/test_dpop`` shows."""
    two = f"{prover.proof('POST', TOKEN_URL)},{prover.proof('POST', TOKEN_URL)}"
    assert refused(flow.redeem(flow.code(), flow.client.basic | {"DPoP": two}))


def test_unknown_client_is_rejected_before_its_proof_is_validated(flow: Flow, prover: Prover) -> None:
    """The proof of an unknown client is not read."""
    headers = {"Authorization": "Basic bm9ib2R5Om5vdGhpbmc="} | prover.headers("POST", TOKEN_URL)
    answer = flow.redeem(flow.code(), headers)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


class TestNonce:
    def test_only_responses_to_proofs_offer_a_nonce(self, flow: Flow, prover: Prover) -> None:
        assert flow.redeem(flow.code(), proven(flow, prover)).headers["DPoP-Nonce"]
        assert "DPoP-Nonce" not in flow.redeem(flow.code()).headers

    def test_offered_nonce_is_accepted(self, flow: Flow, prover: Prover) -> None:
        nonce = flow.redeem(flow.code(), proven(flow, prover)).headers["DPoP-Nonce"]
        assert flow.redeem(flow.code(), proven(flow, prover, nonce=nonce)).status_code == 200

    def test_foreign_dpop_nonce_is_answered_with_a_valid_one(self, flow: Flow, prover: Prover) -> None:
        """RFC 9449 section 8: the rejected proof consumed nothing, and the next one is accepted."""
        code = flow.code()
        answer = flow.redeem(code, proven(flow, prover, nonce="of another server"))
        assert refused(answer, "use_dpop_nonce")
        nonce = answer.headers["DPoP-Nonce"]
        assert flow.redeem(code, proven(flow, prover, nonce=nonce)).status_code == 200

    def test_old_nonce_is_answered_with_a_new_one(
        self, flow: Flow, prover: Prover, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nonce = flow.redeem(flow.code(), proven(flow, prover)).headers["DPoP-Nonce"]
        slot = dpop_proofs._slot
        monkeypatch.setattr(dpop_proofs, "_slot", lambda: slot() + 1)
        assert flow.redeem(flow.code(), proven(flow, prover, nonce=nonce)).status_code == 200
        monkeypatch.setattr(dpop_proofs, "_slot", lambda: slot() + 2)
        assert refused(flow.redeem(flow.code(), proven(flow, prover, nonce=nonce)), "use_dpop_nonce")


class TestBoundCodes:
    """RFC 9449 section 10."""

    def test_code_is_redeemed_only_with_the_named_key(self, flow: Flow, prover: Prover) -> None:
        code = flow.code(dpop_jkt=prover.jkt)
        other = flow.redeem(code, proven(flow, Prover()))
        assert refused(other, "invalid_grant") and "different key" in description_of(other)
        missing = flow.redeem(code)
        assert refused(missing, "invalid_grant")
        assert description_of(missing) == "The code is bound to a key. Send a DPoP proof with that key."
        assert flow.redeem(code, proven(flow, prover)).get_json()["token_type"] == "DPoP"

    @pytest.mark.parametrize("jkt", ["short", "x" * 44, "ü" * 43, "x" * 42 + "\n"])
    def test_malformed_dpop_jkt_is_rejected(self, flow: Flow, jkt: str) -> None:
        assert query_of(flow.authorize(dpop_jkt=jkt))["error"] == "invalid_request"


class TestRefresh:
    def test_refresh_token_of_a_public_client_is_bound_to_the_key(self, spa: Flow, prover: Prover) -> None:
        """RFC 9449 section 5, RF-6: another key or no key is rejected and does not count as a use."""
        tokens = redeem(spa, prover)
        other = spa.refresh(tokens["refresh_token"], proven(spa, Prover()), **identity(spa))
        assert refused(other, "invalid_grant") and "another key" in description_of(other)
        missing = spa.refresh(tokens["refresh_token"], {}, **identity(spa))
        assert refused(missing, "invalid_grant")
        assert (
            description_of(missing) == "The refresh token is bound to a key. Send a DPoP proof with that key."
        )
        answer = spa.refresh(tokens["refresh_token"], proven(spa, prover), **identity(spa))
        assert answer.get_json()["token_type"] == "DPoP"
        assert answer.get_json()["refresh_token"] != tokens["refresh_token"]

    def test_rotated_refresh_token_stays_bound(self, spa: Flow, prover: Prover) -> None:
        first = redeem(spa, prover)["refresh_token"]
        second = spa.refresh(first, proven(spa, prover), **identity(spa)).get_json()["refresh_token"]
        assert refused(spa.refresh(first, {}, **identity(spa)), "invalid_grant")
        assert refused(spa.refresh(second, proven(spa, Prover()), **identity(spa)), "invalid_grant")
        assert spa.refresh(second, proven(spa, prover), **identity(spa)).status_code == 200

    def test_refresh_token_without_a_proof_is_unbound(self, spa: Flow, prover: Prover) -> None:
        tokens = spa.redeem(spa.code(scope=ALL), {}, **identity(spa)).get_json()
        answer = spa.refresh(tokens["refresh_token"], proven(spa, prover), **identity(spa))
        assert answer.get_json()["token_type"] == "DPoP"

    def test_bound_refresh_token_of_a_confidential_client_is_not_rotated(
        self, flow: Flow, prover: Prover
    ) -> None:
        """FAPI 2.0: refresh tokens of sender-constrained confidential clients are not rotated."""
        tokens = redeem(flow, prover)
        for key in (prover, prover, Prover()):
            answer = flow.refresh(tokens["refresh_token"], proven(flow, key))
            assert answer.status_code == 200, answer.text
            assert answer.get_json().get("refresh_token") in {None, tokens["refresh_token"]}
            told = flow.introspect(answer.get_json()["access_token"])
            assert told["cnf"] == {"jkt": key.jkt}


class TestForced:
    def test_client_setting_requires_dpop(self, flow: Flow, prover: Prover) -> None:
        """RFC 9449 section 5.2."""
        client = flow.other_client(
            dpop_bound_access_tokens=True, trust="first_party", redirect_uris=[REDIRECT_URI]
        )
        code = client.code()
        assert refused(client.redeem(code), "invalid_request")
        message = "Tokens of this client are bound to a key. Send a DPoP proof."
        assert only(client).description == message
        assert client.redeem(code, proven(client, prover)).get_json()["token_type"] == "DPoP"

    def test_organization_setting_requires_dpop(self, flow: Flow, prover: Prover) -> None:
        change(flow, require_dpop=True)
        code = flow.code()
        assert refused(flow.redeem(code), "invalid_request")
        assert flow.redeem(code, proven(flow, prover)).get_json()["token_type"] == "DPoP"
        machine = flow.other_client(type="machine", scopes=["reports:read"], redirect_uris=[])
        assert refused(machine.token(grant_type="client_credentials"), "invalid_request")

    def test_setting_applies_from_the_next_request(self, flow: Flow) -> None:
        """Also when another worker changed it, and no longer after it is unset."""
        code, system = flow.code(), flow.make.system(flow.organization)
        with flow.app.app_context(), on_another_worker():
            update_client(system, flow.client.client_id, {"dpop_bound_access_tokens": True})
        assert refused(flow.redeem(code), "invalid_request")
        with flow.app.app_context(), on_another_worker():
            update_client(system, flow.client.client_id, {"dpop_bound_access_tokens": False})
        assert flow.redeem(code).status_code == 200


def test_browser_clients_can_read_the_nonce(spa: Flow, prover: Prover) -> None:
    """CR-3: a browser app retries with it, and a preflight allows the header."""
    headers = proven(spa, prover, nonce="old") | {"Origin": "https://orchard.example"}
    answer = spa.redeem(spa.code(), headers, **identity(spa))
    assert refused(answer, "use_dpop_nonce")
    assert "DPoP-Nonce" in answer.headers["Access-Control-Expose-Headers"]
    asked = spa.http.options("/oauth/token", headers={"Origin": "https://orchard.example"})
    assert "DPoP" in asked.headers["Access-Control-Allow-Headers"]


def change(flow: Flow, **oauth: Any) -> None:
    with flow.app.app_context():
        update_settings(flow.make.system(flow.organization), flow.organization.slug, {"oauth": oauth})


def test_device_flow_binds_tokens_to_the_key(flow: Flow, prover: Prover) -> None:
    """RFC 9449 section 5: every grant; each poll has its own proof."""
    device = Device(flow.http, flow.make, flow.user, scopes=SCOPES)
    codes = device.code(scope=ALL)
    pending = device.poll(codes["device_code"], prover.headers("POST", TOKEN_URL))
    assert refused(pending, "authorization_pending")
    device.sign_in()
    device.allow(codes["user_code"])
    change_rows(flow, DeviceCode, next_poll_at=clock_ago(flow, 1))
    tokens = device.poll(codes["device_code"], prover.headers("POST", TOKEN_URL)).get_json()
    assert tokens["token_type"] == "DPoP"
    form = {"grant_type": "refresh_token", "client_id": device.client.client_id}
    form["refresh_token"] = tokens["refresh_token"]
    assert refused(flow.http.post("/oauth/token", data=form), "invalid_grant")
    again = flow.http.post("/oauth/token", data=form, headers=prover.headers("POST", TOKEN_URL))
    assert again.get_json()["token_type"] == "DPoP"
