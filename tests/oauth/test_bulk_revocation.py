"""Bulk revocation: what each selection revokes, everywhere and immediately, and what it keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.audit.audit_events import list_audit_events
from app.operations.store import clock
from app.rules.identifiers import public_id
from tests.factories import bearer_header
from tests.oauth.conftest import SCOPES, Flow, change_rows, on_another_worker
from tests.support.caches import clear_directory_cache
from tests.support.databases import Database


def post(flow: Flow, *scopes: str, token: str | None = None, **body: Any) -> Any:
    token = token or flow.make.bearer(flow.organization, *(scopes or ("tokens:revoke", "users:write")))
    path = f"/organizations/{flow.organization.slug}/revocations"
    return flow.http.post(path, json=body, headers=bearer_header(token))


def revoke(flow: Flow, **body: Any) -> dict[str, Any]:
    answer = post(flow, **body)
    assert answer.status_code == 201, answer.text
    return dict(answer.get_json()["data"])


def count(flow: Flow, **body: Any) -> dict[str, int]:
    answer = post(flow, **body, dry_run=True)
    assert answer.status_code == 200 and answer.get_json()["data"]["id"] is None, answer.text
    return dict(answer.get_json()["data"]["counts"])


def selections(flow: Flow) -> dict[str, dict[str, Any]]:
    """Return every selection that contains the flow's tokens."""
    grant_id, session_id, credential_id = _ids(flow)
    return {
        "grant": {"grant_id": public_id("grt", grant_id)},
        "client": {"client_id": flow.client.client_id},
        "credential": {"credential_id": public_id("sec", credential_id)},
        "user": {"user_id": flow.user.public_id},
        "session": {"session_id": public_id("ses", session_id)},
        "organization": {"all": True},
    }


def _ids(flow: Flow) -> Any:
    from sqlalchemy import select

    from app.extensions import db

    with flow.app.app_context():
        return db.session.execute(select(Grant.id, Grant.session_id, Grant.credential_id)).first()


def is_dead_everywhere(flow: Flow, tokens: dict[str, Any]) -> bool:
    """Return whether both tokens are rejected at introspection, userinfo and refresh."""
    access, refresh = tokens["access_token"], tokens["refresh_token"]
    doors = [
        flow.is_alive(access),
        flow.is_alive(refresh),
        flow.http.get("/oauth/userinfo", headers=bearer_header(access)).status_code == 200,
        flow.refresh(refresh).status_code == 200,
    ]
    assert len(set(doors)) == 1, doors
    return not doors[0]


KINDS = ("grant", "client", "credential", "user", "session", "organization")


@pytest.mark.parametrize("kind", KINDS)
def test_every_selection_revokes_the_tokens_everywhere_despite_caches(flow: Flow, kind: str) -> None:
    """IT-3."""
    tokens = flow.tokens()
    selected = selections(flow)[kind]
    assert count(flow, **selected) | {"sessions": 0, "codes": 0} == {
        "access_tokens": 1 + (kind == "organization"),  # the caller's own
        "refresh_tokens": 1,
        "grants": 1,
        "sessions": 0,
        "codes": 0,
    }
    caller = flow.make.bearer(flow.organization, "tokens:revoke", "users:write")
    # This worker has now cached everything that is checked; creating the caller's client was its last invalidation.
    assert flow.is_alive(tokens["access_token"]) and flow.is_alive(tokens["refresh_token"])
    with on_another_worker():
        receipt = revoke(flow, token=caller, **selected)
    assert receipt["counts"]["refresh_tokens"] == 1 and receipt["id"].startswith("rev_")
    assert is_dead_everywhere(flow, tokens)
    assert count(flow, **selected)["refresh_tokens"] == 0


@pytest.mark.parametrize("kind", ["client", "user", "organization"])
def test_earlier_code_cannot_be_redeemed(flow: Flow, kind: str) -> None:
    flow.tokens()
    code = flow.code()
    assert count(flow, **selections(flow)[kind])["codes"] == 1
    revoke(flow, **selections(flow)[kind], **({} if kind == "client" else {"include_sessions": False}))
    assert flow.redeem(code).get_json()["error"] == "invalid_grant"


@pytest.mark.parametrize("kind", ["client", "credential", "user", "organization"])
def test_later_tokens_are_valid(flow: Flow, kind: str) -> None:
    """A revocation is not a ban: the app may ask again."""
    flow.tokens()
    sessions = {"include_sessions": False} if kind in {"user", "organization"} else {}
    revoke(flow, **selections(flow)[kind], **sessions)
    after = flow.tokens()
    assert flow.is_alive(after["access_token"]) and flow.refresh(after["refresh_token"]).status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_cutoff_in_the_past_revokes_only_older_tokens(flow: Flow, kind: str) -> None:
    tokens = flow.tokens()
    with flow.app.app_context():
        past = clock.now() - timedelta(minutes=1)
    sessions = {"include_sessions": False} if kind in {"user", "organization"} else {}
    revoke(flow, **selections(flow)[kind], **sessions, issued_before=past.isoformat())
    assert flow.is_alive(tokens["access_token"])
    change_rows(flow, AccessToken, issued_at=past - timedelta(seconds=1))
    change_rows(flow, Grant, allowed_at=past - timedelta(seconds=1))
    if kind in {"client", "credential", "user", "organization"}:
        assert is_dead_everywhere(flow, tokens)


@pytest.mark.parametrize("kind", ["client", "credential", "user", "organization"])
def test_earlier_cutoff_does_not_restore_tokens_of_a_later_one(flow: Flow, kind: str) -> None:
    """IT-3: one cutoff does not hide another (Keycloak CVE-2026-8922)."""
    tokens = flow.tokens()
    selected = selections(flow)[kind] | (
        {"include_sessions": False} if kind in {"user", "organization"} else {}
    )
    revoke(flow, **selected)
    revoke(flow, **selected, issued_before="2020-01-01T00:00:00Z")
    assert is_dead_everywhere(flow, tokens)
    other = {"client": "user", "user": "client"}.get(kind, "client")
    revoke(flow, **selections(flow)[other], issued_before="2020-01-01T00:00:00Z")
    assert is_dead_everywhere(flow, tokens)


def test_tokens_refreshed_after_the_cutoff_are_revoked_with_their_family(flow: Flow) -> None:
    """RV-6: a thief who refreshed later holds nothing newer than the user's grant."""
    first = flow.tokens()
    with flow.app.app_context():
        moment = clock.now()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert flow.is_alive(second["access_token"])
    revoke(flow, client_id=flow.client.client_id, issued_before=moment.isoformat())
    assert is_dead_everywhere(flow, second)


def test_code_redeemed_by_a_worker_with_a_stale_cache_gives_no_valid_tokens(flow: Flow) -> None:
    """The grant is dated by its code, so a late redemption is not newer."""
    flow.tokens()
    code = flow.code(scope=" ".join(SCOPES))
    receipt = revoke(flow, client_id=flow.client.client_id, issued_before=None)
    late = _redeemed_as_if_unheard(flow, code)
    assert receipt["issued_before"] and is_dead_everywhere(flow, late)


def _redeemed_as_if_unheard(flow: Flow, code: str) -> dict[str, Any]:
    from app.models.client import Client

    with flow.app.app_context():
        moment = clock.now()
    change_rows(flow, Client, tokens_not_before=None)
    directory_forgets(flow)
    answer = flow.redeem(code)
    assert answer.status_code == 200, answer.text
    change_rows(flow, Client, tokens_not_before=moment)
    directory_forgets(flow)
    return dict(answer.get_json())


def directory_forgets(flow: Flow) -> None:

    with flow.app.app_context():
        clear_directory_cache()


def test_users_and_organizations_can_be_signed_out(flow: Flow, http: Any) -> None:
    """SS-5: an administrator ends sessions, and the browser's next request is anonymous."""
    page = f"/organizations/{flow.organization.slug}/account/sessions"
    for sign_ins, body in (
        (2, {"user_id": flow.user.public_id}),
        (1, {"all": True, "include_sessions": True}),
    ):
        flow.sign_in()
        assert http.get(page).status_code == 200
        assert count(flow, **body)["sessions"] == sign_ins
        with on_another_worker():
            assert revoke(flow, **body)["include_sessions"] is True
        assert http.get(page).status_code != 200
    assert count(flow, all=True, include_sessions=True)["sessions"] == 0


def test_revoking_tokens_keeps_the_session(flow: Flow, http: Any) -> None:
    page = f"/organizations/{flow.organization.slug}/account/sessions"
    revoke(flow, user_id=flow.user.public_id, include_sessions=False)
    revoke(flow, all=True)
    assert http.get(page).status_code == 200


def test_caller_can_revoke_its_own_token_and_is_told(flow: Flow) -> None:
    token = flow.make.bearer(flow.organization, "tokens:revoke")
    answer = post(flow, token=token, all=True)
    assert answer.status_code == 201
    [warning] = answer.get_json()["meta"]["warnings"]
    assert "access token of this request" in warning
    assert post(flow, token=token, all=True).status_code == 401


def test_client_tokens_are_revoked_with_client_secret_or_organization(app: Flask, flow: Flow) -> None:
    """Tokens without a user have no grant but follow the same cutoffs."""
    for body in ("client", "credential", "organization"):
        machine = flow.make.machine(flow.organization, "clients:read")
        form = {"grant_type": "client_credentials"}
        token = flow.token(machine.basic, **form).get_json()["access_token"]
        secret = machine.registered.credential
        assert secret is not None
        chosen = {
            "client": {"client_id": machine.client_id},
            "credential": {"credential_id": secret.public_id},
            "organization": {"all": True},
        }[body]
        assert flow.http.get("/clients", headers=bearer_header(token)).status_code == 200
        revoke(flow, **chosen)
        assert flow.http.get("/clients", headers=bearer_header(token)).status_code == 401, body
        again = flow.token(machine.basic, **form).get_json()["access_token"]
        assert flow.http.get("/clients", headers=bearer_header(again)).status_code == 200


def test_lists_omit_grants_revoked_by_a_cutoff(flow: Flow) -> None:
    flow.tokens()
    revoke(flow, client_id=flow.client.client_id)
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:read"))
    assert flow.http.get("/grants", headers=headers).get_json()["data"] == []


def test_receipt_and_audit_event_record_actor_and_counts(flow: Flow, database: Database) -> None:
    flow.tokens()
    receipt = revoke(flow, client_id=flow.client.client_id, reason="Laptop lost")
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:read"))
    path = f"/organizations/{flow.organization.slug}/revocations"
    assert flow.http.get(path, headers=headers).get_json()["data"] == [receipt]
    assert flow.http.get(f"{path}/{receipt['id']}", headers=headers).get_json()["data"] == receipt
    assert receipt["selection"] == {"client_id": flow.client.client_id}
    assert receipt["reason"] == "Laptop lost" and receipt["created_by_id"].startswith("cli_")
    with flow.app.app_context():
        [event] = list_audit_events(
            flow.make.system(flow.organization), filters={"action": "tokens.revoked"}
        ).items
    assert event.after is not None
    assert event.after["counts"] == receipt["counts"] and event.after["revocation"] == receipt["id"]


def test_dry_run_changes_nothing(flow: Flow, database: Database) -> None:
    tokens = flow.tokens()
    for selected in selections(flow).values():
        count(flow, **selected)
    assert flow.is_alive(tokens["access_token"]) and flow.is_alive(tokens["refresh_token"])
    assert database.query("SELECT COUNT(*) FROM revocation_receipts") == [(0,)]


def test_idempotency_key_revokes_once(flow: Flow, database: Database) -> None:
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:revoke")) | {"Idempotency-Key": "k"}
    path = f"/organizations/{flow.organization.slug}/revocations"
    body = {"client_id": flow.client.client_id}
    first, second = (flow.http.post(path, json=body, headers=headers).get_json() for _ in range(2))
    assert first["data"] == second["data"] and second["meta"]["repeated"]
    assert database.query("SELECT COUNT(*) FROM revocation_receipts") == [(1,)]
