"""Sessions: expiry by the database's clock, revocation with immediate effect, and current permissions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.session import Session
from app.models.user import User
from app.operations.organizations.administrators import add_administrator, remove_administrator
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.pending_sign_ins import create_pending_sign_in, find_pending_sign_in
from app.operations.sign_in.sessions import (
    SessionRecord,
    end_other_sessions,
    end_session,
    find_session,
    list_sessions,
    rotate_session_token,
    start_session,
)
from app.operations.sign_in.sign_in import Browser
from app.operations.users.user_changes import end_user_session
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import new_token
from tests.factories import PASSWORD

pytestmark = pytest.mark.usefixtures("context")
LIMITS = {"authentication": {"sessions": {"idle_timeout_seconds": 3600, "absolute_timeout_seconds": 7200}}}


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings=LIMITS)


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme)


def is_active(token: str) -> bool:
    return find_session(token) is not None


def move_sessions_back(**moves: int) -> None:
    """Move all times of all sessions into the past by so many seconds."""
    with db.engine.begin() as connection:
        for row in connection.execute(select(Session.__table__)).all():
            values = {
                name: getattr(row, name) - timedelta(seconds=seconds) for name, seconds in moves.items()
            }
            connection.execute(update(Session).where(Session.id == row.id).values(**values))


def test_replacing_sign_in_has_a_later_auth_time(acme: Any, ada: Any) -> None:
    """SS-7: ``auth_time`` strictly increases. SS-2: the previous session is invalid."""
    first, _ = start_session(acme, ada.id)
    before = find_session(first)
    second, _ = start_session(acme, ada.id, replaces=first)
    after = find_session(second)
    assert before is not None and after is not None
    assert int(after.authenticated_at.timestamp()) > int(before.authenticated_at.timestamp())
    assert (after.authenticated_at - after.created_at).total_seconds() <= 1
    assert not is_active(first)


def test_only_the_cookie_value_finds_the_session(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    assert is_active(token)
    assert not is_active(token[:-1])
    assert not is_active(token.upper())
    assert not is_active(new_token("ss", acme.id))
    assert not is_active(new_token("at", acme.id))
    assert not is_active("")
    assert not is_active("x" * 5000)


def test_cookie_value_with_other_organization_is_rejected(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    globex = make.organization()
    assert not is_active(token.replace(ada.organization.id, globex.id))


def test_new_sign_in_invalidates_the_previous_cookie(make: Any, acme: Any, ada: Any) -> None:
    """SS-2: session fixation. A planted cookie is worthless once the victim signs in."""
    planted = make.sign_in(ada).token
    fresh = sign_in(acme.id, ada.email, PASSWORD, browser=Browser(replaces=planted))
    assert not is_active(planted)
    assert is_active(fresh.token)


def test_idle_session_expires(make: Any, ada: Any) -> None:
    """SS-4."""
    token = make.sign_in(ada).token
    move_sessions_back(last_seen_at=3590)
    assert is_active(token)
    move_sessions_back(last_seen_at=3700)
    assert not is_active(token)


def test_use_extends_session_up_to_absolute_timeout(make: Any, ada: Any) -> None:
    """SS-4."""
    token = make.sign_in(ada).token
    move_sessions_back(last_seen_at=3000, created_at=3000, expires_at=3000)
    assert is_active(token)  # and is seen
    move_sessions_back(last_seen_at=3000, created_at=3000, expires_at=3000)
    assert is_active(token)
    move_sessions_back(last_seen_at=10, created_at=3000, expires_at=3000)
    assert not is_active(token)


def test_shortened_timeout_applies_to_existing_sessions(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    move_sessions_back(created_at=1000)
    update_settings(
        make.actor(acme),
        acme.slug,
        {"authentication": {"sessions": {"idle_timeout_seconds": 900, "absolute_timeout_seconds": 900}}},
    )
    assert not is_active(token)


def test_last_seen_is_written_at_most_once_a_minute(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    first = find_session(token).last_seen_at
    assert find_session(token).last_seen_at == first
    move_sessions_back(last_seen_at=61)
    find_session(token)
    assert find_session(token).last_seen_at > first - timedelta(seconds=60)


def test_role_changes_apply_immediately(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    assert find_session(token).permissions == frozenset()
    make.user(acme, role="admin")
    added = add_administrator(make.system(acme), acme.slug, user_id=ada.public_id, role="admin")
    assert "clients:write" in find_session(token).permissions
    remove_administrator(make.system(acme), acme.slug, added.admin.public_id)
    assert find_session(token).permissions == frozenset()


def test_ending_a_session_deletes_the_row_and_is_audited(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    actor = find_session(token).actor()
    assert end_session(actor)
    assert not is_active(token)
    assert db.session.scalar(select(func.count()).select_from(Session)) == 0
    assert not end_session(actor)
    assert len(db.session.scalars(select(AuditEvent).where(AuditEvent.action == "session.ended")).all()) == 1


def test_sign_in_that_waits_in_the_browser_ends_with_its_session(make: Any, acme: Any, ada: Any) -> None:
    """SS-5: the browser's history leads to its page, where the next user could go on without a password."""
    ends: list[Callable[[SessionRecord], object]] = [
        lambda session: end_session(session.actor()),
        lambda session: end_session(session.actor(), session.public_id),
        lambda session: end_user_session(make.system(acme), session.user_public_id, session.public_id),
    ]
    for end in ends:
        session = find_session(make.sign_in(ada).token)
        assert session is not None
        waiting, _ = create_pending_sign_in(acme, ada.id, ("pwd",), "browser")
        end(session)
        assert find_pending_sign_in(acme, waiting, "browser") is None


def test_other_session_can_be_ended_from_the_list(make: Any, ada: Any) -> None:
    here, there = make.sign_in(ada).token, make.sign_in(ada).token
    actor = find_session(here).actor()
    listed = list_sessions(actor)
    assert [sign_in.is_current for sign_in in listed] == [True, False]
    end_session(actor, listed[1].public_id)
    assert is_active(here)
    assert not is_active(there)
    with pytest.raises(NotFound):
        end_session(actor, listed[1].public_id)


def test_sessions_of_other_users_are_hidden_and_cannot_be_ended(make: Any, acme: Any, ada: Any) -> None:
    eve = make.user(acme)
    hers, mine = make.sign_in(ada), make.sign_in(eve)
    actor = find_session(mine.token).actor()
    with pytest.raises(NotFound):
        end_session(actor, find_session(hers.token).public_id)
    assert len(list_sessions(actor)) == 1
    assert end_other_sessions(actor) == 0
    assert is_active(hers.token)


def test_all_other_sessions_can_be_ended(make: Any, ada: Any) -> None:
    here, *others = (make.sign_in(ada).token for _ in range(4))
    assert end_other_sessions(find_session(here).actor()) == 3
    assert is_active(here)
    assert not any(is_active(token) for token in others)


def test_rotated_session_has_one_valid_token(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    renewed = rotate_session_token(find_session(token).actor())
    assert not is_active(token)
    assert is_active(renewed)


def test_oldest_session_ends_beyond_the_limit(make: Any) -> None:
    acme = make.organization(settings={"authentication": {"sessions": {"max_per_user": 2}}})
    ada = make.user(acme)
    tokens = [make.sign_in(ada).token for _ in range(3)]
    assert [is_active(token) for token in tokens] == [False, True, True]


def test_visiting_root_user_has_no_account_in_the_organization(make: Any, acme: Any, ada: Any) -> None:
    root = make.root()
    visiting = make.actor(root, user=ada).acting_in(acme.id, frozenset({"clients:read"}))
    for refused in (list_sessions, end_session, end_other_sessions):
        with pytest.raises(Forbidden):
            refused(visiting)


def test_revoked_session_is_not_found(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    with db.engine.begin() as connection:
        connection.execute(update(Session).values(revoked_at=Session.created_at))
    assert not is_active(token)


def test_extended_timeout_does_not_apply_to_existing_sessions(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    longer = {"idle_timeout_seconds": 3600, "absolute_timeout_seconds": 86400}
    update_settings(make.actor(acme), acme.slug, {"authentication": {"sessions": longer}})
    move_sessions_back(created_at=7300, expires_at=7300)
    assert not is_active(token)


def test_extended_idle_timeout_applies_to_existing_sessions(make: Any, acme: Any, ada: Any) -> None:
    """As the API documents."""
    token = make.sign_in(ada).token
    move_sessions_back(last_seen_at=3700)
    assert not is_active(token)
    longer = {"authentication": {"sessions": {"idle_timeout_seconds": 7200}}}
    update_settings(make.actor(acme), acme.slug, longer)
    assert is_active(token)


def test_session_of_disabled_user_is_not_found(make: Any, ada: Any) -> None:
    """A sign-in that commits concurrently with the disabling must not survive it."""
    token = make.sign_in(ada).token
    with db.engine.begin() as connection:
        connection.execute(update(User).where(User.id == ada.id).values(status="disabled"))
    assert not is_active(token)
