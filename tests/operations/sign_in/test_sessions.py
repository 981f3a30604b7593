"""Sessions: they live by the database's clock, end at once everywhere, and show rights as they are now."""

from __future__ import annotations

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
from app.operations.sign_in.sessions import (
    end_other_sessions,
    end_session,
    find_session,
    list_sessions,
    rotate_session_token,
    start_session,
)
from app.operations.sign_in.sign_in import sign_in
from app.rules.errors import Forbidden, NotFound
from app.rules.token_values import new_token
from tests.factories import PASSWORD

pytestmark = pytest.mark.usefixtures("context")
LIMITS = {"authentication": {"sessions": {"idle_timeout_seconds": 3600, "absolute_timeout_seconds": 7200}}}


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings=LIMITS)


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme)


def living(token: str) -> bool:
    return find_session(token) is not None


def age(**moves: int) -> None:
    """Every session's times lie so many seconds further back."""
    with db.engine.begin() as connection:
        for row in connection.execute(select(Session.__table__)).all():
            values = {
                name: getattr(row, name) - timedelta(seconds=seconds) for name, seconds in moves.items()
            }
            connection.execute(update(Session).where(Session.id == row.id).values(**values))


def test_a_sign_in_that_takes_anothers_place_is_later_by_whole_seconds(acme: Any, ada: Any) -> None:
    """SS-7: ``auth_time`` moves strictly forward, however fast somebody types; SS-2: the one before is dead."""
    first, _ = start_session(acme, ada.id)
    before = find_session(first)
    second, _ = start_session(acme, ada.id, replaces=first)
    after = find_session(second)
    assert before is not None and after is not None
    assert int(after.authenticated_at.timestamp()) > int(before.authenticated_at.timestamp())
    assert (after.authenticated_at - after.created_at).total_seconds() <= 1
    assert not living(first)


def test_the_cookie_s_value_finds_the_session_and_nothing_else_does(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    assert living(token)
    assert not living(token[:-1])
    assert not living(token.upper())
    assert not living(new_token("ss", acme.id))
    assert not living(new_token("at", acme.id))
    assert not living("")
    assert not living("x" * 5000)


def test_another_organization_in_the_value_finds_nothing(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    globex = make.organization()
    assert not living(token.replace(ada.organization.id, globex.id))


def test_signing_in_again_in_the_same_browser_kills_the_former_value(make: Any, acme: Any, ada: Any) -> None:
    """SS-2: fixation. Whoever planted a value has nothing once its victim signs in."""
    planted = make.sign_in(ada).token
    fresh = sign_in(acme.id, ada.email, PASSWORD, replaces=planted)
    assert not living(planted)
    assert living(fresh.token)


def test_an_idle_session_ends(make: Any, ada: Any) -> None:
    """SS-4."""
    token = make.sign_in(ada).token
    age(last_seen_at=3590)
    assert living(token)
    age(last_seen_at=3700)
    assert not living(token)


def test_use_keeps_a_session_alive_but_never_beyond_its_absolute_end(make: Any, ada: Any) -> None:
    """SS-4."""
    token = make.sign_in(ada).token
    age(last_seen_at=3000, created_at=3000, expires_at=3000)
    assert living(token)  # and is seen
    age(last_seen_at=3000, created_at=3000, expires_at=3000)
    assert living(token)
    age(last_seen_at=10, created_at=3000, expires_at=3000)
    assert not living(token)


def test_a_timeout_made_shorter_ends_sessions_that_began_before(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    age(created_at=1000)
    update_settings(
        make.actor(acme),
        acme.slug,
        {"authentication": {"sessions": {"idle_timeout_seconds": 900, "absolute_timeout_seconds": 900}}},
    )
    assert not living(token)


def test_being_seen_is_written_at_most_once_a_minute(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    first = find_session(token).last_seen_at
    assert find_session(token).last_seen_at == first
    age(last_seen_at=61)
    find_session(token)
    assert find_session(token).last_seen_at > first - timedelta(seconds=60)


def test_roles_count_at_once(make: Any, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    assert find_session(token).permissions == frozenset()
    make.user(acme, role="admin")
    added = add_administrator(make.system(acme), acme.slug, user_id=ada.public_id, role="admin")
    assert "clients:write" in find_session(token).permissions
    remove_administrator(make.system(acme), acme.slug, added.admin.public_id)
    assert find_session(token).permissions == frozenset()


def test_signing_out_deletes_the_row_and_is_audited(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    actor = find_session(token).actor()
    assert end_session(actor)
    assert not living(token)
    assert db.session.scalar(select(func.count()).select_from(Session)) == 0
    assert not end_session(actor)
    assert len(db.session.scalars(select(AuditEvent).where(AuditEvent.action == "session.ended")).all()) == 1


def test_a_sign_in_in_another_browser_can_be_ended_from_the_list(make: Any, ada: Any) -> None:
    here, there = make.sign_in(ada).token, make.sign_in(ada).token
    actor = find_session(here).actor()
    listed = list_sessions(actor)
    assert [sign_in.is_current for sign_in in listed] == [True, False]
    end_session(actor, listed[1].public_id)
    assert living(here)
    assert not living(there)
    with pytest.raises(NotFound):
        end_session(actor, listed[1].public_id)


def test_nobody_ends_or_sees_another_person_s_sign_in(make: Any, acme: Any, ada: Any) -> None:
    eve = make.user(acme)
    hers, mine = make.sign_in(ada), make.sign_in(eve)
    actor = find_session(mine.token).actor()
    with pytest.raises(NotFound):
        end_session(actor, find_session(hers.token).public_id)
    assert len(list_sessions(actor)) == 1
    assert end_other_sessions(actor) == 0
    assert living(hers.token)


def test_all_others_end_at_once(make: Any, ada: Any) -> None:
    here, *others = (make.sign_in(ada).token for _ in range(4))
    assert end_other_sessions(find_session(here).actor()) == 3
    assert living(here)
    assert not any(living(token) for token in others)


def test_a_renewed_session_has_one_value(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    renewed = rotate_session_token(find_session(token).actor())
    assert not living(token)
    assert living(renewed)


def test_beyond_the_bound_the_oldest_sign_in_ends(make: Any) -> None:
    acme = make.organization(settings={"authentication": {"sessions": {"max_per_user": 2}}})
    ada = make.user(acme)
    tokens = [make.sign_in(ada).token for _ in range(3)]
    assert [living(token) for token in tokens] == [False, True, True]


def test_root_visiting_is_no_account_of_the_organization(make: Any, acme: Any, ada: Any) -> None:
    root = make.root()
    visiting = make.actor(root, user=ada).acting_in(acme.id, frozenset({"clients:read"}))
    for refused in (list_sessions, end_session, end_other_sessions):
        with pytest.raises(Forbidden):
            refused(visiting)


def test_a_revoked_row_is_no_session(make: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    with db.engine.begin() as connection:
        connection.execute(update(Session).values(revoked_at=Session.created_at))
    assert not living(token)


def test_a_timeout_made_longer_does_not_prolong_sessions_that_began_before(
    make: Any, acme: Any, ada: Any
) -> None:
    token = make.sign_in(ada).token
    longer = {"idle_timeout_seconds": 3600, "absolute_timeout_seconds": 86400}
    update_settings(make.actor(acme), acme.slug, {"authentication": {"sessions": longer}})
    age(created_at=7300, expires_at=7300)
    assert not living(token)


def test_a_disabled_user_s_session_is_none_even_while_its_row_stands(make: Any, ada: Any) -> None:
    """A sign-in that commits beside the disabling must not outlive it."""
    token = make.sign_in(ada).token
    with db.engine.begin() as connection:
        connection.execute(update(User).where(User.id == ada.id).values(status="disabled"))
    assert not living(token)
