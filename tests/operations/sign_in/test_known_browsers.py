"""Known browsers: who signed in completely is known there, for a year, and hears of a sign-in anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.session import KnownBrowser
from app.operations.maintenance.janitor import purge
from app.operations.sign_in import known_browsers as operation
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sign_in import SignedIn, sign_in
from app.operations.store import clock
from app.operations.users.deletion import delete_user
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound
from app.rules.token_values import digest
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(name="Acme")


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


def enter(user: Any, known: str = "", **more: Any) -> SignedIn:
    outcome = sign_in(
        user.organization.id, user.email, user.password, address="192.0.2.7", known=known, **more
    )
    assert isinstance(outcome, SignedIn)
    return outcome


def as_herself(user: Any) -> Actor:
    home = user.organization.id
    return Actor("user", home, home, user_id=user.id, label=user.email, ip_address="192.0.2.7")


def is_known(user: Any, cookie: str) -> bool:
    return operation.find_known_browser(user.organization.id, user.email, cookie) is not None


def test_the_first_sign_in_makes_the_browser_known_and_keeps_a_digest_alone(
    ada: Any, database: Database
) -> None:
    """LK-1: 256 random bits; a copy of the database opens nothing."""
    cookie = enter(ada, user_agent=FIREFOX).known
    row = db.session.scalars(select(KnownBrowser)).one()
    assert (row.digest, row.user_agent, row.address) == (digest(cookie), FIREFOX, "192.0.2.7")
    assert row.expires_at - row.created_at == timedelta(days=365)
    db.session.remove()
    assert cookie.encode() not in database.dump()
    assert is_known(ada, cookie) and not is_known(ada, "")


def test_another_sign_in_there_keeps_the_value_and_begins_the_year_again(ada: Any) -> None:
    cookie = enter(ada).known
    with db.engine.begin() as connection:
        connection.execute(update(KnownBrowser).values(expires_at=clock.now() + timedelta(days=1)))
    assert enter(ada, cookie).known == cookie
    row = db.session.scalars(select(KnownBrowser)).one()
    assert timedelta(days=364) < row.expires_at - clock.now() <= timedelta(days=365)


def test_a_second_person_in_the_browser_gets_a_value_of_their_own(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob@acme.example")
    first = enter(ada).known
    both = enter(bob, first).known
    assert both.endswith(f".{first}")
    assert is_known(ada, both) and is_known(bob, both)
    assert not is_known(bob, first)


def test_a_cookie_holds_the_last_few_people(make: Any, acme: Any) -> None:
    cookie, people = "", [make.user(acme) for _ in range(operation.MAX_USERS_PER_COOKIE + 1)]
    for person in people:
        cookie = enter(person, cookie).known
    assert len(cookie.split(".")) == operation.MAX_USERS_PER_COOKIE
    assert [is_known(person, cookie) for person in people] == [
        False,
        *[True] * operation.MAX_USERS_PER_COOKIE,
    ]


def test_a_person_has_so_many_and_the_one_used_longest_ago_goes(
    ada: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "MAX_BROWSERS_PER_USER", 3)
    cookies = [enter(ada).known for _ in range(5)]
    assert [is_known(ada, cookie) for cookie in cookies] == [False, False, True, True, True]
    assert database.count("known_browsers") == 3


def test_a_year_later_it_is_forgotten_and_swept(ada: Any, database: Database) -> None:
    cookie = enter(ada).known
    with db.engine.begin() as connection:
        connection.execute(update(KnownBrowser).values(expires_at=clock.now() - timedelta(seconds=1)))
    assert not is_known(ada, cookie)
    assert operation.list_known_browsers(as_herself(ada), cookie) == []
    assert enter(ada, cookie).known != cookie
    purge(Actor.system("", "tests"), pause=0)
    assert database.count("known_browsers") == 1


def test_a_wrong_password_makes_nothing_known(ada: Any, database: Database) -> None:
    sign_in(ada.organization.id, ada.email, "wrong", address="192.0.2.7")
    assert database.count("known_browsers") == 0


def test_a_new_password_forgets_the_others_and_keeps_this_one(ada: Any) -> None:
    here, there = enter(ada).known, enter(ada).known
    change_password(as_herself(ada), PASSWORD, "a wholly different password", known=here)
    assert is_known(ada, here) and not is_known(ada, there)


def test_a_reset_forgets_all_and_makes_this_one_known(make: Any, acme: Any, ada: Any) -> None:
    """LK-1: whoever goes on guessing does not keep out the owner, who has just chosen a new password."""
    stolen = enter(ada).known
    link = issue_reset_link(make.actor(acme), ada.id).link
    known = reset_password(
        acme, link.rpartition("/")[2], "a wholly different password", address="192.0.2.7"
    ).known
    assert is_known(ada, known) and not is_known(ada, stolen)


def test_one_sees_and_forgets_one_s_own(make: Any, acme: Any, ada: Any, database: Database) -> None:
    here, there = enter(ada).known, enter(ada, user_agent=FIREFOX).known
    bob = make.user(acme, email="bob@acme.example")
    enter(bob)
    listed = operation.list_known_browsers(as_herself(ada), here)
    assert [browser.is_current for browser in listed] == [True, False]
    assert listed[1].user_agent == FIREFOX
    operation.forget_browser(as_herself(ada), listed[1].public_id)
    assert is_known(ada, here) and not is_known(ada, there)
    (others,) = operation.list_known_browsers(as_herself(bob), "")
    for wrong in (others.public_id, listed[1].public_id, "kbr_x", ""):
        with pytest.raises(NotFound):
            operation.forget_browser(as_herself(ada), wrong)
    with pytest.raises(Forbidden):
        operation.list_known_browsers(make.actor(acme), "")
    assert audited(database, "browser.forgotten") == 1


def test_who_is_deleted_is_known_nowhere(make: Any, acme: Any, ada: Any, database: Database) -> None:
    enter(ada)
    delete_user(make.actor(acme), ada.public_id)
    assert database.count("known_browsers") == 0


def test_a_sign_in_in_a_new_browser_is_told_by_mail(
    ada: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    first = enter(ada).known
    enter(ada, first)
    deliver()
    assert box.mails == []
    enter(ada, user_agent=FIREFOX)
    deliver()
    (mail,) = box.mails
    assert (mail["To"], mail["Subject"]) == (ada.email, "A new sign-in to your account at Acme")
    assert "Firefox on Linux" in plain(mail) and "from 192.0.2.7" in plain(mail)


def test_what_was_rolled_back_is_told_to_nobody(
    ada: Any, box: Mailbox, deliver: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice is part of the sign-in: one that fails makes no browser known and writes to nobody."""
    enter(ada)

    def fail(*args: Any, **values: Any) -> None:
        raise RuntimeError("no audit event")

    monkeypatch.setattr("app.operations.sign_in.sign_in.audit.record", fail)
    with pytest.raises(RuntimeError):
        enter(ada)
    assert deliver() == 0
    assert len(operation.list_known_browsers(as_herself(ada), "")) == 1
