"""Refresh tokens: rotation, the grace period, and revocation of the family after reuse."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.grant import Grant
from app.operations.organizations.settings import update_settings
from app.operations.store import clock, keyring, outages
from app.operations.store.transactions import transaction
from app.operations.tokens import issuance, refresh_tokens
from app.rules import sealing
from app.rules.identifiers import new_id, new_refresh_token, parse_token
from tests.oauth.conftest import REDIRECT_URI, SCOPES, Flow, audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox


def is_refused(answer) -> bool:
    return (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")


def configure(flow: Flow, **refresh_token: Any) -> None:
    with flow.app.app_context():
        changes = {"oauth": {"refresh_token": refresh_token}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)


def move(app: Flask, **columns: timedelta) -> None:
    """Shift the times of every grant."""

    @transaction
    def act() -> None:
        for row in db.session.scalars(select(Grant)).all():
            values = {name: getattr(row, name) + by for name, by in columns.items() if getattr(row, name)}
            db.session.execute(update(Grant).where(Grant.id == row.id).values(values))

    with app.app_context():
        act()


def grant_of(app: Flask) -> Grant:
    with app.app_context():
        return db.session.scalars(select(Grant)).one()


def test_each_use_returns_a_new_refresh_token(flow: Flow) -> None:
    """RF-1: confidential clients too."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    third = flow.refresh(second["refresh_token"]).get_json()
    assert len({first["refresh_token"], second["refresh_token"], third["refresh_token"]}) == 3
    assert len({first["access_token"], second["access_token"], third["access_token"]}) == 3
    assert set(second) == {"access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token"}
    assert all(flow.is_alive(document["access_token"]) for document in (first, second, third))


def test_repeated_refresh_in_the_grace_period_returns_the_same_response(
    flow: Flow, database: Database
) -> None:
    """RF-3."""
    first = flow.tokens()
    answers = [flow.refresh(first["refresh_token"]) for _ in range(4)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.data for answer in answers}) == 1
    assert database.count("access_tokens") == 2
    assert grant_of(flow.app).generation == 1
    assert audited(database, "refresh_token.reused") == 0


def test_using_the_successor_ends_the_grace_period(flow: Flow, database: Database) -> None:
    """RF-3, RF-4: using the old token afterwards is reuse, even within the grace period."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    third = flow.refresh(second["refresh_token"]).get_json()
    assert is_refused(flow.refresh(first["refresh_token"]))
    for document in (first, second, third):
        assert not flow.is_alive(document["access_token"])
        assert is_refused(flow.refresh(document["refresh_token"]))
    assert audited(database, "refresh_token.reused") == 1


def test_successor_that_is_not_rotated_ends_the_grace_period(flow: Flow, database: Database) -> None:
    """RF-3: neither does the first use of the successor if that one stays, here by a change of the settings."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    configure(flow, rotation="public_clients")
    third = flow.refresh(second["refresh_token"]).get_json()
    assert third.get("refresh_token") in {None, second["refresh_token"]}
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert audited(database, "refresh_token.reused") == 1


class LaggingNode:
    """A database node that has not applied the last change: its first answers are from before."""

    def __init__(self, query: CompiledQuery, *outdated: Any) -> None:
        self._query, self._outdated = query, list(outdated)

    def first(self, **values: Any) -> Any:
        """Return an outdated row while there is one."""
        return self._outdated.pop(0) if self._outdated else self._query.first(**values)


def test_outdated_read_does_not_revoke_an_honest_family(
    flow: Flow, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RF-4: what looks like reuse on a node that lags behind is decided by the row that the update meets."""
    first = flow.tokens()
    parsed = parse_token(first["refresh_token"])
    assert parsed is not None
    with flow.app.app_context():
        before = refresh_tokens._FIND.first(organization_id=flow.organization.id, grant_id=parsed.grant_id)
    second = flow.refresh(first["refresh_token"]).get_json()
    monkeypatch.setattr(refresh_tokens, "_FIND", LaggingNode(refresh_tokens._FIND, before, before, before))
    third = flow.refresh(second["refresh_token"])
    assert third.status_code == 200, third.text
    assert flow.is_alive(third.get_json()["access_token"])
    assert audited(database, "refresh_token.reused") == 0


def test_use_after_the_grace_period_is_reuse(flow: Flow) -> None:
    """RF-3, RF-4."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    move(flow.app, rotated_at=-timedelta(seconds=31))
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert not flow.is_alive(second["access_token"])
    assert is_refused(flow.refresh(second["refresh_token"]))


def test_user_is_notified_of_refresh_token_reuse_once(
    flow: Flow, box: Mailbox, deliver: Callable[[], int]
) -> None:
    """RF-4."""
    first = flow.tokens()
    flow.refresh(first["refresh_token"])
    move(flow.app, rotated_at=-timedelta(seconds=31))
    for _ in range(3):
        assert is_refused(flow.refresh(first["refresh_token"]))
    deliver()
    assert [mail["To"] for mail in box.mails] == [flow.user.email]
    assert "An app was signed out" in box.mails[0]["Subject"]


def test_user_is_not_notified_within_the_grace_period(flow: Flow) -> None:
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"])
    move(flow.app, rotated_at=-timedelta(seconds=20))
    assert flow.refresh(first["refresh_token"]).data == second.data


def test_organization_can_disable_the_grace_period(flow: Flow) -> None:
    configure(flow, reuse_grace_seconds=0)
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert not flow.is_alive(second["access_token"])


def test_much_older_refresh_token_is_reuse(flow: Flow, database: Database) -> None:
    """RF-4: its digest is no longer stored; the tag shows that we issued it."""
    first = flow.tokens()
    latest = first
    for _ in range(4):
        latest = flow.refresh(latest["refresh_token"]).get_json()
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert not flow.is_alive(latest["access_token"])
    assert audited(database, "refresh_token.reused") == 1


def checked(body: str) -> str:
    return f"{body}{zlib.crc32(body.encode()):08x}"


def forged(flow: Flow, token: str) -> str:
    """Return a token with the same grant and a valid checksum, which any holder of a token can make."""
    return checked(token[:-30] + "A" * 22)


FORGERIES: dict[str, Callable[[Flow, str], str]] = {
    "another tag": lambda flow, token: checked(token[:-19] + "A" * 11),
    "other random bits": lambda flow, token: checked(
        token[:50] + ("B" if token[50] != "B" else "C") + token[51:-8]
    ),
    "entirely invented": forged,
    "the tag of another instance": lambda flow, token: new_refresh_token(
        flow.organization.id, grant_id_of(token), b"x" * 32
    ),
    "a broken checksum": lambda flow, token: token[:-1] + ("0" if token[-1] != "0" else "1"),
    "an access token": lambda flow, token: flow.tokens()["access_token"],
    "nothing": lambda flow, token: "x",
}


def grant_id_of(token: str):
    parsed = parse_token(token)
    assert parsed is not None and parsed.grant_id is not None
    return parsed.grant_id


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_refresh_token_revokes_nothing(flow: Flow, database: Database, forge) -> None:
    """RF-4: the grant's name is not a secret, so only our own tags count as reuse."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert is_refused(flow.refresh(forge(flow, second["refresh_token"])))
    assert flow.is_alive(second["access_token"])
    assert flow.refresh(second["refresh_token"]).status_code == 200
    assert audited(database, "refresh_token.reused") == 0


def test_refresh_token_of_an_unknown_grant_is_unknown(flow: Flow) -> None:
    with flow.app.app_context():
        token = new_refresh_token(
            flow.organization.id, new_id(), keyring.refresh_tag_key(flow.organization.id)
        )
    assert is_refused(flow.refresh(token))


def test_organization_can_disable_rotation_for_confidential_clients(flow: Flow) -> None:
    configure(flow, rotation="public_clients")
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    assert "refresh_token" not in second
    third = flow.refresh(first["refresh_token"]).get_json()
    assert len({document["access_token"] for document in (first, second, third)}) == 3


def test_public_clients_always_rotate(flow: Flow) -> None:
    """RF-1."""
    configure(flow, rotation="public_clients")
    public = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    own = {"client_id": public.client.client_id}
    first = public.redeem(public.code(scope=" ".join(SCOPES)), {}, **own).get_json()
    second = public.refresh(first["refresh_token"], {}, **own).get_json()
    third = public.refresh(second["refresh_token"], {}, **own).get_json()
    assert is_refused(public.refresh(first["refresh_token"], {}, **own))
    assert is_refused(public.refresh(third["refresh_token"], {}, **own))


def test_rolled_back_refresh_changes_nothing(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """RF-7: neither in the database nor in memory. The client can retry."""
    first = flow.tokens()

    def fail(*_: object) -> None:
        raise RuntimeError("the worker died here")

    with monkeypatch.context() as broken:
        broken.setattr(issuance, "store_access_token", fail)
        broken.setattr(flow.app, "testing", False)
        broken.setitem(flow.app.config, "PROPAGATE_EXCEPTIONS", False)
        assert flow.refresh(first["refresh_token"]).status_code == 500
    assert grant_of(flow.app).generation == 0
    assert flow.refresh(first["refresh_token"]).status_code == 200


def test_sealed_response_opens_only_with_the_presented_token(flow: Flow, database: Database) -> None:
    """RF-3: a database dump cannot open it."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    grant = grant_of(flow.app)
    dump = database.dump()
    for secret in (first["refresh_token"], second["refresh_token"], second["access_token"]):
        assert secret.encode() not in dump
    with pytest.raises(sealing.UnsealError):
        sealing.unseal(refresh_tokens._key(second["refresh_token"]), grant.sealed_answer, grant.id.bytes)
    opened = sealing.unseal(refresh_tokens._key(first["refresh_token"]), grant.sealed_answer, grant.id.bytes)
    assert second["access_token"].encode() in opened


def beat(app: Flask, *seconds_ago: float) -> None:
    """Report the service as reachable at these times, from the first on."""
    now = clock.now()
    with app.app_context(), pytest.MonkeyPatch.context() as patch:
        for seconds in seconds_ago:
            at = now - timedelta(seconds=seconds)
            patch.setattr(clock, "measured_now", lambda at=at: at)
            outages.beat()


# Seconds ago: when the answer was lost, and when the service reported that it is reachable. The grace period is 30 s.
LOST_ANSWERS = {
    "an hour away, just back": (3605, (3606, 5), True),
    "an hour away, back, and no report yet": (3605, (3606,), True),
    "away soon after the answer": (3620, (3620, 3610, 10), True),
    "away twice": (700, (701, 400, 395, 5), True),
    "away without end": (8 * 86_400, (8 * 86_400 + 1, 5), False),
    "back for longer than the grace period": (3600, (3601, *range(40, 0, -4)), False),
    "away before the answer only": (60, (7200, *range(61, 0, -4)), False),
    "reachable all the time": (40, tuple(range(42, 0, -4)), False),
    "never a report": (40, (), False),
    "reachable, and the clock was an hour ahead": (40, (42, -3600, *range(38, 0, -4)), False),
    "reachable, and the clock was ten minutes ahead for a while": (
        640,
        (641, 10, 6, 2, *range(600, 0, -4)),
        False,
    ),
}


def test_token_that_was_used_while_the_clock_was_ahead_is_not_accepted(
    flow: Flow, database: Database
) -> None:
    """Nor does it revoke its successor: an honest client may have lost the answer."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    for ahead in (10, 3600):
        move(flow.app, rotated_at=timedelta(seconds=ahead))
        assert is_refused(flow.refresh(first["refresh_token"]))
    assert audited(database, "refresh_token.reused") == 0
    assert flow.refresh(second["refresh_token"]).status_code == 200


def test_process_that_is_ahead_counts_outages(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go back with the database's clock, and reports have the measured time."""
    beat(flow.app, 110, 5)
    with flow.app.app_context():
        ahead = clock.now() + timedelta(hours=1)
        monkeypatch.setattr(clock, "now", lambda: ahead)
        away = outages.unreachable_since(ahead - timedelta(seconds=120))
    assert timedelta(seconds=95) < away < timedelta(seconds=115)


@pytest.mark.parametrize(("lost", "reports", "is_repeated"), LOST_ANSWERS.values(), ids=LOST_ANSWERS.keys())
def test_grace_period_counts_only_while_the_service_is_reachable(
    flow: Flow, database: Database, lost: float, reports: tuple[float, ...], is_repeated: bool
) -> None:
    """RF-3: an outage does not use up the time in which a lost answer can be fetched again."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).get_json()
    beat(flow.app, *reports)
    move(flow.app, rotated_at=-timedelta(seconds=lost))
    answer = flow.refresh(first["refresh_token"])
    if is_repeated:
        assert answer.get_json() | {"expires_in": 0} == second | {"expires_in": 0}
        assert answer.get_json()["expires_in"] == max(0, second["expires_in"] - int(lost))
        assert flow.refresh(second["refresh_token"]).status_code == 200
        assert audited(database, "refresh_token.reused") == 0
    # Once the successor was used, no outage excuses the old token (RF-4).
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert audited(database, "refresh_token.reused") == 1
