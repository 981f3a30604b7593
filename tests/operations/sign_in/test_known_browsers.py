"""Known browsers: a completed sign-in makes one for a year, and a sign-in elsewhere is notified."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.session import KnownBrowser
from app.operations.maintenance.janitor import purge_expired
from app.operations.sign_in import known_browsers
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sign_in import Browser, SignedIn
from app.operations.store import clock
from app.operations.users.deletion import delete_user
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import digest
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"


def sign_in_from(user: Any, known: str = "", user_agent: str = "") -> SignedIn:
    browser = Browser(known_cookie=known, user_agent=user_agent)
    outcome = sign_in(
        user.organization.id, user.email, user.password, ip_address="192.0.2.7", browser=browser
    )
    assert isinstance(outcome, SignedIn)
    return outcome


def actor_of(user: Any) -> Actor:
    home = user.organization.id
    return Actor("user", home, home, user_id=user.id, label=user.email, ip_address="192.0.2.7")


def is_known(user: Any, cookie: str) -> bool:
    return known_browsers.find_known_browser(user.organization.id, user.email, cookie) is not None


def test_first_sign_in_remembers_browser_as_digest(ada: Any, database: Database) -> None:
    """LK-1: 256 random bits, so that a copy of the database is useless."""
    cookie = sign_in_from(ada, user_agent=FIREFOX).known_cookie
    row = db.session.scalars(select(KnownBrowser)).one()
    assert (row.digest, row.user_agent, row.address) == (digest(cookie), FIREFOX, "192.0.2.7")
    assert row.expires_at - row.created_at == timedelta(days=365)
    db.session.remove()
    assert cookie.encode() not in database.dump()
    assert is_known(ada, cookie) and not is_known(ada, "")


def test_later_sign_in_keeps_cookie_and_extends_expiry(ada: Any) -> None:
    cookie = sign_in_from(ada).known_cookie
    with db.engine.begin() as connection:
        connection.execute(update(KnownBrowser).values(expires_at=clock.now() + timedelta(days=1)))
    assert sign_in_from(ada, cookie).known_cookie == cookie
    row = db.session.scalars(select(KnownBrowser)).one()
    assert timedelta(days=364) < row.expires_at - clock.now() <= timedelta(days=365)


def test_second_user_in_browser_gets_own_value(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob@acme.example")
    first = sign_in_from(ada).known_cookie
    both = sign_in_from(bob, first).known_cookie
    assert both.endswith(f".{first}")
    assert is_known(ada, both) and is_known(bob, both)
    assert not is_known(bob, first)


def test_cookie_contains_the_most_recent_users(make: Any, acme: Any) -> None:
    cookie, users = "", [make.user(acme) for _ in range(known_browsers.MAX_USERS_PER_COOKIE + 1)]
    for user in users:
        cookie = sign_in_from(user, cookie).known_cookie
    assert len(cookie.split(".")) == known_browsers.MAX_USERS_PER_COOKIE
    assert [is_known(user, cookie) for user in users] == [
        False,
        *[True] * known_browsers.MAX_USERS_PER_COOKIE,
    ]


def test_least_recently_used_browser_is_deleted_beyond_the_limit(
    ada: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_browsers, "MAX_BROWSERS_PER_USER", 3)
    cookies = [sign_in_from(ada).known_cookie for _ in range(5)]
    assert [is_known(ada, cookie) for cookie in cookies] == [False, False, True, True, True]
    assert database.count("known_browsers") == 3


def test_browser_expires_after_a_year(ada: Any, database: Database) -> None:
    cookie = sign_in_from(ada).known_cookie
    with db.engine.begin() as connection:
        connection.execute(update(KnownBrowser).values(expires_at=clock.now() - timedelta(seconds=1)))
    assert not is_known(ada, cookie)
    assert known_browsers.list_known_browsers(actor_of(ada), cookie) == []
    assert sign_in_from(ada, cookie).known_cookie != cookie
    purge_expired(Actor.system("", "tests"), pause=0)
    assert database.count("known_browsers") == 1


def test_wrong_password_does_not_remember_browser(ada: Any, database: Database) -> None:
    sign_in(ada.organization.id, ada.email, "wrong", ip_address="192.0.2.7")
    assert database.count("known_browsers") == 0


def test_password_change_forgets_other_browsers(ada: Any) -> None:
    here, there = sign_in_from(ada).known_cookie, sign_in_from(ada).known_cookie
    change_password(actor_of(ada), PASSWORD, "a wholly different password", known_cookie=here)
    assert is_known(ada, here) and not is_known(ada, there)


def test_password_reset_forgets_other_browsers_and_remembers_this_one(make: Any, acme: Any, ada: Any) -> None:
    """LK-1: someone who keeps guessing cannot lock out the owner after a reset."""
    stolen = sign_in_from(ada).known_cookie
    link = issue_reset_link(make.actor(acme), ada.id).link
    known = reset_password(
        acme, link.rpartition("/")[2], "a wholly different password", ip_address="192.0.2.7"
    ).known_cookie
    assert is_known(ada, known) and not is_known(ada, stolen)


def test_user_lists_and_forgets_own_browsers(make: Any, acme: Any, ada: Any, database: Database) -> None:
    here, there = sign_in_from(ada).known_cookie, sign_in_from(ada, user_agent=FIREFOX).known_cookie
    bob = make.user(acme, email="bob@acme.example")
    sign_in_from(bob)
    listed = known_browsers.list_known_browsers(actor_of(ada), here)
    assert [browser.is_current for browser in listed] == [True, False]
    assert listed[1].user_agent == FIREFOX
    known_browsers.forget_browser(actor_of(ada), listed[1].public_id)
    assert is_known(ada, here) and not is_known(ada, there)
    (others,) = known_browsers.list_known_browsers(actor_of(bob), "")
    for wrong in (others.public_id, listed[1].public_id, "kbr_x", ""):
        with pytest.raises(NotFound):
            known_browsers.forget_browser(actor_of(ada), wrong)
    with pytest.raises(Forbidden):
        known_browsers.list_known_browsers(make.actor(acme), "")
    assert audited(database, "browser.forgotten") == 1


def test_deleted_user_has_no_known_browsers(make: Any, acme: Any, ada: Any, database: Database) -> None:
    sign_in_from(ada)
    delete_user(make.actor(acme), ada.public_id)
    assert database.count("known_browsers") == 0


def test_sign_in_in_new_browser_is_notified_by_email(
    ada: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    first = sign_in_from(ada).known_cookie
    sign_in_from(ada, first)
    deliver()
    assert box.mails == []
    sign_in_from(ada, user_agent=FIREFOX)
    deliver()
    (mail,) = box.mails
    assert (mail["To"], mail["Subject"]) == (ada.email, "New sign-in to your Acme account")
    assert "Firefox on Linux" in plain(mail) and "from 192.0.2.7" in plain(mail)


def test_failed_sign_in_sends_no_notification(
    ada: Any, box: Mailbox, deliver: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification is part of the sign-in, so a failed one remembers no browser and sends no email."""
    sign_in_from(ada)

    def fail(*args: Any, **values: Any) -> None:
        raise RuntimeError("no audit event")

    monkeypatch.setattr("app.operations.sign_in.sign_in.audit.record", fail)
    with pytest.raises(RuntimeError):
        sign_in_from(ada)
    assert deliver() == 0
    assert len(known_browsers.list_known_browsers(actor_of(ada), "")) == 1
