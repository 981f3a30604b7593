"""Revocation (RFC 7009): after the 200 the token is invalid, whatever other parameters were sent."""

from __future__ import annotations

import pytest

from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.tokens import revocation
from app.rules.identifiers import new_token
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow, audited, on_another_worker
from tests.support.databases import Database


def revoke(flow: Flow, token: str, headers: dict[str, str] | None = None, **more: str):
    return flow.http.post(
        "/oauth/revoke",
        data={"token": token} | more,
        headers=flow.client.basic if headers is None else headers,
    )


@pytest.mark.parametrize(
    "hint",
    [{}, {"token_type_hint": "access_token"}, {"token_type_hint": "refresh_token"}, {"token_type_hint": "x"}],
    ids=str,
)
def test_revoking_an_access_token_leaves_the_grant_valid(
    flow: Flow, database: Database, hint: dict[str, str]
) -> None:
    """RV-3, RV-6: with any token_type_hint."""
    tokens = flow.tokens()
    answer = revoke(flow, tokens["access_token"], **hint)
    assert (answer.status_code, answer.get_json()) == (200, {})
    assert not flow.is_alive(tokens["access_token"])
    assert flow.is_alive(tokens["refresh_token"])
    assert flow.refresh(tokens["refresh_token"]).status_code == 200
    assert audited(database, "token.revoked") == 1


@pytest.mark.parametrize(
    "hint", [{}, {"token_type_hint": "access_token"}, {"token_type_hint": "refresh_token"}], ids=str
)
def test_revoking_a_refresh_token_revokes_its_family(
    flow: Flow, database: Database, hint: dict[str, str]
) -> None:
    """RV-3, RV-6."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert revoke(flow, second["refresh_token"], **hint).status_code == 200
    for document in (first, second):
        assert not flow.is_alive(document["access_token"])
        assert flow.refresh(document["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert audited(database, "token.revoked") == 1


def test_revoking_a_rotated_refresh_token_revokes_its_family(flow: Flow) -> None:
    """The client wants the newer token revoked as well."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert revoke(flow, first["refresh_token"]).status_code == 200
    assert not flow.is_alive(second["access_token"]) and not flow.is_alive(second["refresh_token"])


def test_repeated_revocation_is_audited_once(flow: Flow, database: Database) -> None:
    """RV-8."""
    tokens = flow.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        assert {revoke(flow, token).status_code for _ in range(3)} == {200}
    assert audited(database, "token.revoked") == 2


@pytest.mark.mariadb
def test_token_that_an_outdated_read_misses_is_revoked(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """RV-5: a node that lags behind finds nothing until it has committed a write of its own."""
    tokens = flow.tokens()
    find, misses = revocation._find_access_token, [None]
    lagging = lambda *arguments: misses.pop() if misses else find(*arguments)  # noqa: E731
    monkeypatch.setattr(revocation, "_find_access_token", lagging)
    assert revoke(flow, tokens["access_token"]).status_code == 200
    assert not flow.is_alive(tokens["access_token"])
    assert audited(database, "token.revoked") == 1


def test_revoking_a_foreign_token_returns_200(flow: Flow, make: Factory, database: Database) -> None:
    """RV-2: unknown, malformed, another organization's; nothing changes."""
    tokens = flow.tokens()
    there = make.organization(settings=FAST_KEYS)
    foreign = Flow(flow.app, flow.http, make, make.client(there, scopes=SCOPES), flow.user)
    nonsense = [
        "x",
        "ü☃",
        new_token("at", flow.organization.id),
        tokens["id_token"],
        flow.client.secret,
        "a.b.c",
    ]
    answers = [revoke(flow, token) for token in nonsense]
    answers += [revoke(foreign, tokens[name]) for name in ("access_token", "refresh_token")]
    assert {(answer.status_code, answer.data) for answer in answers} == {(200, b"{}")}
    assert flow.is_alive(tokens["access_token"]) and flow.is_alive(tokens["refresh_token"])
    assert audited(database, "token.revoked") == 0


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_token_of_another_client_is_rejected_and_stays_valid(flow: Flow, name: str) -> None:
    """RV-2."""
    tokens = flow.tokens()
    other = flow.other_client()
    answer = revoke(other, tokens[name])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
    assert flow.is_alive(tokens[name])


def test_public_client_can_revoke_its_own_token(flow: Flow) -> None:
    """RV-7."""
    public = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    own = {"client_id": public.client.client_id}
    tokens = public.redeem(public.code(scope=" ".join(SCOPES)), {}, **own).get_json()
    assert revoke(public, tokens["refresh_token"], {}, **own).status_code == 200
    assert public.refresh(tokens["refresh_token"], {}, **own).get_json()["error"] == "invalid_grant"


@pytest.mark.parametrize("change", ["secret", "status"])
def test_client_that_may_no_longer_authenticate_cannot_revoke(flow: Flow, change: str) -> None:
    """F24: this worker's cache is out of date."""
    token = flow.tokens()["access_token"]
    system = flow.make.system(flow.organization)
    with flow.app.app_context(), on_another_worker():
        if change == "secret":
            revoke_credentials(system, flow.client.client_id)
        else:
            update_client(system, flow.client.client_id, {"status": "disabled"})
    answer = revoke(flow, token)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


def test_token_parameter_is_required(flow: Flow) -> None:
    for data in ({}, {"token": ""}):
        answer = flow.http.post("/oauth/revoke", data=data, headers=flow.client.basic)
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def test_every_revocation_is_published_to_external_validators(flow: Flow, database: Database) -> None:
    tokens = flow.tokens()
    before = database.count("revocation_log")
    revoke(flow, tokens["access_token"])
    revoke(flow, tokens["refresh_token"])
    assert database.count("revocation_log") == before + 2


def test_storage_failure_returns_503(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """RV-4: the caller retries."""
    from app.operations.tokens import revocation
    from app.rules.errors import Unavailable

    token = flow.tokens()["access_token"]

    def fail(*_: object) -> None:
        raise Unavailable

    with monkeypatch.context() as broken:
        broken.setattr(revocation, "_record", fail)
        answer = revoke(flow, token)
        assert (answer.status_code, answer.get_json()["error"]) == (503, "temporarily_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
    assert flow.is_alive(token)
    assert revoke(flow, token).status_code == 200 and not flow.is_alive(token)
