"""Client secret rotation from start to end, with real use at the token endpoint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Credential
from app.models.token import AccessToken
from app.operations.clients import rotations
from app.operations.mail import notices
from app.operations.maintenance.janitor import purge_expired
from app.operations.organizations.organizations import update_organization
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.identifiers import parse_client_id
from app.rules.shapes import parse_time
from tests.factories import basic_header, bearer_header
from tests.oauth.conftest import Flow, change_rows, clock_ago
from tests.support.caches import clear_directory_cache, clear_recorded_uses
from tests.support.mail_server import Mailbox, plain

JANITOR = Actor.system("", "janitor")


class Rotating:
    """A rotation through the API, with the secrets before and after."""

    def __init__(self, flow: Flow, **body: Any) -> None:
        self.flow = flow
        self.headers = bearer_header(
            flow.make.bearer(flow.organization, "credentials:read", "credentials:write")
        )
        self.path = f"/clients/{flow.client.client_id}/credentials/rotation"
        self.old = flow.client.basic
        made = flow.http.post(self.path, json=body, headers=self.headers)
        assert made.status_code == 201, made.text
        self.new = basic_header(flow.client.client_id, made.get_json()["data"]["client_secret"])

    def ask(self) -> dict[str, Any]:
        answer = self.flow.http.get(self.path, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json()["data"])

    def steer(self, **body: Any) -> Any:
        return self.flow.http.put(self.path, json=body, headers=self.headers)

    def cancel(self, query: str = "") -> Any:
        return self.flow.http.delete(self.path + query, headers=self.headers)

    def works(self, header: dict[str, str]) -> bool:
        answer = self.flow.http.post("/oauth/introspect", data={"token": "x"}, headers=header)
        assert answer.status_code in {200, 401}
        return answer.status_code == 200

    def use(self, header: dict[str, str]) -> dict[str, Any]:
        """Run a flow with the secret, record its use and return the tokens."""
        clear_recorded_uses()
        answer = self.flow.redeem(self.flow.code(scope="openid offline_access"), header)
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())


def test_progress_reflects_real_use(flow: Flow) -> None:
    rotating = Rotating(flow)
    begun = rotating.ask()
    assert begun["in_progress"] and not begun["safe_to_finish"] and len(begun["old"]) == 1
    assert begun["verdict"] == "Neither secret has been used yet. Deploy the new secret first."
    rotating.use(rotating.old)
    assert "not been used yet" in rotating.ask()["verdict"]
    rotating.use(rotating.new)
    both = rotating.ask()
    assert both["new"]["first_used_at"] and both["old"][0]["active_tokens"] == 1
    assert "Wait until it has been unused" in both["verdict"]
    _age(flow, hours=2)
    assert rotating.ask()["safe_to_finish"]


def _age(flow: Flow, hours: float) -> None:
    """Move all recorded uses back by the given hours."""
    with flow.app.app_context():
        for row in db.session.scalars(select(Credential)):
            for name in ("first_used_at", "last_used_at"):
                moment = getattr(row, name)
                setattr(row, name, None if moment is None else moment - timedelta(hours=hours))
        db.session.commit()


@pytest.mark.parametrize("is_idle", [True, False])
@pytest.mark.parametrize("revoke_tokens", [True, False])
def test_rotation_can_finish_early_with_or_without_revoking_old_tokens(
    flow: Flow, revoke_tokens: bool, is_idle: bool
) -> None:
    """Also those of an app that was not used for days, of whose tokens only the grant is left."""
    rotating = Rotating(flow)
    tokens = rotating.use(rotating.old)
    if is_idle:
        change_rows(flow, AccessToken, expires_at=clock_ago(flow, 2 * 86_400))
        with flow.app.app_context():
            purge_expired(JANITOR, pause=0)
        held = ("credentials:read", "credentials:write")
        rotating.headers = bearer_header(flow.make.bearer(flow.organization, *held))
    answer = rotating.steer(expires_in_seconds=0, revoke_tokens=revoke_tokens)
    assert answer.status_code == 200 and not answer.get_json()["data"]["in_progress"]
    assert not rotating.works(rotating.old) and rotating.works(rotating.new)
    flow_with_new = flow.http.post(
        "/oauth/introspect", data={"token": tokens["access_token"]}, headers=rotating.new
    )
    assert flow_with_new.get_json()["active"] is not (revoke_tokens or is_idle)
    refreshed = flow.refresh(tokens["refresh_token"], rotating.new)
    assert (refreshed.status_code == 200) is not revoke_tokens
    assert rotating.steer(expires_in_seconds=0).get_json()["error"] == "no_rotation"


@pytest.mark.parametrize("revoke_tokens", [True, False])
def test_tokens_of_an_expired_secret_end_or_continue_as_configured(flow: Flow, revoke_tokens: bool) -> None:
    """No job runs at that moment; cached clients know the expiry."""
    rotating = Rotating(flow, revoke_tokens=revoke_tokens)
    tokens = rotating.use(rotating.old)
    assert rotating.ask()["old"][0]["revokes_tokens_on_expiry"] is revoke_tokens
    assert flow.is_alive(tokens["access_token"])
    _end_now(flow)
    assert not rotating.works(rotating.old)
    for name in ("access_token", "refresh_token"):
        told = flow.http.post("/oauth/introspect", data={"token": tokens[name]}, headers=rotating.new)
        assert told.get_json()["active"] is not revoke_tokens, name
    grants = flow.http.get(
        "/grants", headers=bearer_header(flow.make.bearer(flow.organization, "tokens:read"))
    )
    assert len(grants.get_json()["data"]) == (0 if revoke_tokens else 1)


def _end_now(flow: Flow) -> None:
    with flow.app.app_context():
        db.session.execute(
            update(Credential)
            .where(Credential.retiring_since.is_not(None))
            .values(expires_at=clock.now() - timedelta(seconds=1))
        )
        db.session.commit()
        clear_directory_cache()


def test_rotation_can_be_extended_and_canceled(flow: Flow) -> None:
    rotating = Rotating(flow, expires_in_seconds=60)
    before = rotating.ask()["expires_at"]
    after = rotating.steer(expires_in_seconds=86_400).get_json()["data"]
    assert after["expires_at"] > before
    kept = rotating.cancel().get_json()["data"]
    assert [secret["expires_at"] for secret in kept] == [None, None]
    assert rotating.works(rotating.old) and rotating.works(rotating.new)
    assert not rotating.ask()["in_progress"] and rotating.cancel().get_json()["error"] == "no_rotation"


def test_extended_rotation_does_not_outlive_the_expiry_that_a_secret_had_before(flow: Flow) -> None:
    """Whoever may rotate secrets could keep one for ever, whatever lifetime the organization sets."""
    with flow.app.app_context():
        expiry = clock.now().replace(microsecond=0) + timedelta(hours=1)
        own = Credential.organization_id == flow.organization.id
        db.session.execute(update(Credential).where(own).values(expires_at=expiry))
        db.session.commit()
    rotating = Rotating(flow, expires_in_seconds=60)
    assert rotating.steer(expires_in_seconds=86_400).status_code == 200
    assert parse_time(rotating.ask()["expires_at"]) == expiry
    assert [secret["expires_at"] for secret in rotating.cancel().get_json()["data"]].count(None) == 1


def test_rotation_can_be_canceled_with_the_new_secret(flow: Flow) -> None:
    rotating = Rotating(flow)
    kept = rotating.cancel("?revoke_new=true").get_json()["data"]
    assert len(kept) == 1
    assert rotating.works(rotating.old) and not rotating.works(rotating.new)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expires_in_seconds": -1}, "expires_in_seconds"),
        ({"expires_in_seconds": "0"}, "expires_in_seconds"),
        ({"revoke_tokens": 1}, "revoke_tokens"),
        ({"soon": True}, "soon"),
    ],
)
def test_invalid_rotation_request_is_explained(flow: Flow, body: dict[str, Any], field: str) -> None:
    rotating = Rotating(flow)
    answer = rotating.steer(**body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.get_json()["errors"]] == [field]


def test_administrators_are_warned_once_if_the_old_secret_is_still_used(
    flow: Flow, box: Mailbox, deliver: Callable[[], int]
) -> None:
    flow.make.user(flow.organization, email="admin@acme.example", role="admin")
    rotating = Rotating(flow, expires_in_seconds=1800)
    deliver()
    box.mails.clear()
    with flow.app.app_context():
        assert list(rotations.send_expiry_reminders(JANITOR)) == []
    rotating.use(rotating.old)
    with flow.app.app_context():
        # It waits for the end of a suspension.
        for status, sent in (("suspended", [0]), ("active", None)):
            update_organization(flow.make.actor(flow.make.root()), flow.organization.slug, {"status": status})
            assert sent is None or list(rotations.send_expiry_reminders(JANITOR)) == sent
        assert (purge_expired(flow.make.system(flow.make.root()), pause=0) or {}).get("reminders") == 1
        assert list(rotations.send_expiry_reminders(JANITOR)) == []
    deliver()
    [mail] = [mail for mail in box.mails if "secret" in mail["Subject"]]
    assert mail["To"] == "admin@acme.example" and "is about to expire but is still in use" in mail["Subject"]
    assert f"/clients/{flow.client.client_id}/credentials" in plain(mail)
    rotating.steer(expires_in_seconds=1200)
    rotating.use(rotating.old)
    with flow.app.app_context():
        # A new expiry gets its own reminder when it is due.
        assert list(rotations.send_expiry_reminders(JANITOR)) == [1]
    deliver()
    assert len([mail for mail in box.mails if "is about to expire" in mail["Subject"]]) == 2


def test_reminders_beyond_the_hourly_limit_are_sent_later(
    flow: Flow, box: Mailbox, deliver: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.make.user(flow.organization, email="admin@acme.example", role="admin")
    for _ in range(2):
        flow.make.client(flow.organization)
    with flow.app.app_context():
        now = clock.now()
        soon = {"last_used_at": now, "expires_at": now + timedelta(minutes=30)}
        db.session.execute(update(Credential).values(created_at=now - timedelta(days=9), **soon))
        db.session.commit()
        for limit, sent in ((1, [1, 0, 0]), (9, [1, 1]), (9, [])):
            monkeypatch.setattr(notices, "MAX_ADMINISTRATOR_NOTICES_PER_HOUR", limit)
            assert list(rotations.send_expiry_reminders(JANITOR)) == sent
        deliver()
    assert len([mail for mail in box.mails if "is about to expire" in mail["Subject"]]) == 3


@pytest.mark.usefixtures("box")
def test_secrets_that_are_not_due_do_not_hide_due_ones(flow: Flow) -> None:
    """Many secrets that expire soon must not block reminders of other organizations."""
    others = [flow.make.client(flow.organization) for _ in range(3)]
    with flow.app.app_context():
        now = clock.now()
        ends = now + timedelta(minutes=30)
        # Unused since the rotation began, and they expire first.
        db.session.execute(
            update(Credential).values(
                created_at=now - timedelta(days=9),
                retiring_since=now - timedelta(minutes=9),
                last_used_at=now - timedelta(minutes=20),
                expires_at=ends,
                notified_at=None,
            )
        )
        mine = Credential.client_id == parse_client_id(others[-1].client_id)[1]
        db.session.execute(
            update(Credential).where(mine).values(last_used_at=now, expires_at=ends + timedelta(minutes=9))
        )
        db.session.commit()
        assert list(rotations.send_expiry_reminders(JANITOR, batch=1)) == [1]
        assert list(rotations.send_expiry_reminders(JANITOR, batch=2)) == []
