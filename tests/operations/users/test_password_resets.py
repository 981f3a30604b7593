"""Password resets: a single-use link sets one password and does not sign in (RP-1, RP-3, PW-4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import find_user_by_email, get_user
from app.operations.organizations.administrators import (
    add_administrator,
    list_administrators,
    remove_administrator,
)
from app.operations.organizations.organizations import delete_organization, restore_organization
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users.account_links import consume_link
from app.operations.users.password_resets import (
    ResetEnded,
    create_reset_link,
    find_reset,
    issue_reset_link,
    reset_password,
)
from app.operations.users.users import disable_user, enable_user
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import digest
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
NEW = "a wholly different password"


@transaction
def change(**values: Any) -> None:
    """Change values of every user."""
    db.session.execute(update(User).values(**values))


def token_for(make: Any, user: Any) -> str:
    link = issue_reset_link(make.actor(user.organization), user.id).link
    return link.rpartition("/")[2]


def test_new_password_works_and_old_one_does_not(make: Any, acme: Any, ada: Any, database: Database) -> None:
    """RP-3, SS-6: no one is signed in by it, and every session has ended."""
    standing = make.sign_in(ada)
    token = token_for(make, ada)
    reset_password(acme, token, NEW)
    assert find_session(standing.token) is None
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignInRefused)
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)
    assert audited(database, "user.password_reset_requested") == 1
    assert audited(database, "user.password_reset") == 1


def test_link_shown_to_an_administrator_does_not_verify_the_email(make: Any, acme: Any, ada: Any) -> None:
    """OI-5."""
    change(email_verified=False)
    reset_password(acme, token_for(make, ada), NEW)
    user = find_user_by_email(acme.id, ada.email)
    assert user is not None and user.email_verified is False


def test_link_works_once(make: Any, acme: Any, ada: Any) -> None:
    """RP-1."""
    token = token_for(make, ada)
    reset_password(acme, token, NEW)
    with pytest.raises(ResetEnded):
        reset_password(acme, token, "and yet another password")
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)


def test_new_link_invalidates_the_previous_one(make: Any, acme: Any, ada: Any) -> None:
    """RP-1."""
    first, second = token_for(make, ada), token_for(make, ada)
    assert find_reset(acme, first) is None
    assert find_reset(acme, second) is not None


def test_link_expires(make: Any, ada: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-1: the setting ``authentication.recovery.reset_ttl_seconds``, 30 minutes by default."""
    token = token_for(make, ada)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(minutes=29))
    assert find_reset(acme, token) is not None
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(minutes=31))
    assert find_reset(acme, token) is None


def test_link_lifetime_is_a_setting(make: Any) -> None:
    """The setting ``authentication.recovery.reset_ttl_seconds``."""
    brief = make.organization(settings={"authentication": {"recovery": {"reset_ttl_seconds": 300}}})
    user = make.user(brief)
    before = clock.now()
    expires_at = issue_reset_link(make.actor(brief), user.id).expires_at
    assert timedelta(seconds=299) < expires_at - before <= timedelta(seconds=301)


def test_mailed_link_ends_where_resets_by_email_are_not_allowed_any_more(
    make: Any, acme: Any, ada: Any
) -> None:
    shown, mailed = (
        create_reset_link(acme, user, is_mailed=is_mailed)[0]
        for user, is_mailed in (
            (get_user(acme.id, ada.id), False),
            (get_user(acme.id, make.user(acme).id), True),
        )
    )
    off = {"authentication": {"recovery": {"password_reset": False}}}
    update_settings(make.actor(acme), acme.slug, off)
    now = get_organization_by_id(acme.id)
    assert find_reset(now, shown) is not None, "an administrator passes it on"
    with pytest.raises(ResetEnded):
        reset_password(now, mailed, NEW)


def test_password_change_invalidates_the_link(make: Any, acme: Any, ada: Any) -> None:
    """RP-1. A sign-in that renews an outdated hash changes no password."""
    token = token_for(make, ada)
    change(password_hash="renewed")
    assert find_reset(acme, token) is not None
    change(password_changed_at=clock.now())
    assert find_reset(acme, token) is None


def test_email_change_invalidates_the_link(make: Any, acme: Any, ada: Any) -> None:
    token = token_for(make, ada)
    read_before = get_user(acme.id, ada.id)
    change(email_canonical="new@acme.example")
    assert find_reset(acme, token) is None
    # Nor does a link work that was created in the same moment, and sent to the email that was read.
    token, _ = create_reset_link(acme, read_before, is_mailed=True)
    assert find_reset(acme, token) is None


def test_role_invalidates_a_link_that_an_administrator_has_seen(make: Any, acme: Any, ada: Any) -> None:
    """TN-11: who may reset the password of a member cannot become an administrator with a link made before."""
    helpdesk = make.actor(acme, "users:write", user=make.user(acme))
    shown = issue_reset_link(helpdesk, ada.id).link.rpartition("/")[2]
    waiting = find_reset(acme, shown)
    add_administrator(make.actor(acme), acme.slug, user_id=ada.public_id)
    assert find_reset(acme, shown) is None and waiting is not None and not consume_link(waiting)
    mailed, _ = create_reset_link(acme, get_user(acme.id, ada.id), is_mailed=True)
    admin = list_administrators(make.actor(acme), acme.slug).items[-1]
    remove_administrator(make.actor(acme, user=make.user(acme, role="admin")), acme.slug, admin.public_id)
    assert find_reset(acme, mailed) is not None


def test_link_of_another_organization_is_unknown(make: Any, ada: Any) -> None:
    """TN-6."""
    token = token_for(make, ada)
    assert find_reset(make.organization(), token) is None


def test_disabled_user_cannot_reset_the_password(make: Any, acme: Any, ada: Any) -> None:
    token = token_for(make, ada)
    disable_user(make.actor(acme), ada.id)
    with pytest.raises(ResetEnded):
        reset_password(acme, token, NEW)
    with pytest.raises(Conflict):
        token_for(make, ada)


def test_link_from_before_the_user_was_disabled_stays_invalid(make: Any, acme: Any, ada: Any) -> None:
    token = token_for(make, ada)
    disable_user(make.actor(acme), ada.id)
    enable_user(make.actor(acme), ada.id)
    assert find_reset(acme, token) is None


def test_rejected_password_does_not_use_the_link(make: Any, acme: Any, ada: Any) -> None:
    token = token_for(make, ada)
    with pytest.raises(InvalidInput):
        reset_password(acme, token, "short")
    reset_password(acme, token, NEW)


def test_link_is_stored_as_digest(make: Any, ada: Any, database: Database) -> None:
    """TK-2."""
    token = token_for(make, ada)
    rows = database.query("SELECT digest FROM account_links")
    assert [bytes(row[0]) for row in rows] == [digest(token)]


def test_issuing_a_link_requires_permission(make: Any, acme: Any, ada: Any, database: Database) -> None:
    """TN-11: no one can take over a user who has more permissions."""
    boss = make.user(acme, role="admin")
    with pytest.raises(Forbidden):
        issue_reset_link(make.actor(acme, "users:read"), ada.id)
    with pytest.raises(Forbidden):
        issue_reset_link(make.actor(acme, "users:write"), boss.id)
    with pytest.raises(NotFound):
        issue_reset_link(make.actor(make.organization()), ada.id)
    assert database.count("account_links") == 0
    assert audited(database, "user.password_reset_requested") == 0


def test_role_in_a_deleted_organization_protects_a_user(make: Any, acme: Any) -> None:
    """TN-11: who takes the user over has the role once the organization is restored."""
    root = make.root()
    admin = make.actor(root, user=make.user(root, role="admin"))
    helper = make.actor(root, "users:read", "users:write", user=make.user(root))
    bob = make.user(root)
    assert issue_reset_link(helper, bob.id).link
    add_administrator(admin, acme.slug, user_id=bob.public_id, role="admin")
    for change in (None, delete_organization, restore_organization):
        if change is not None:
            change(admin, acme.slug)
        with pytest.raises(Forbidden):
            issue_reset_link(helper, bob.id)
        assert issue_reset_link(admin, bob.id).link


def test_pw4_link_in_clear_requires_a_recent_sign_in(
    make: Any, acme: Any, ada: Any, database: Database
) -> None:
    """Without the current password, a session left open would be enough to set a new one."""
    boss = make.user(acme, role="admin")
    late = make.actor(acme, user=boss, authenticated_ago_seconds=3600)
    for user in (boss, ada):
        with pytest.raises(FreshSignInRequired):
            issue_reset_link(late, user.id)
        assert database.count("account_links") == 0
    assert issue_reset_link(make.actor(acme, user=boss), boss.id).link


def test_reset_is_rejected_where_passwords_are_disabled(make: Any) -> None:
    """The setting ``authentication.password.enabled``."""
    without = make.organization(settings={"authentication": {"password": {"enabled": False}}})
    user = make.user(without)
    with pytest.raises(Conflict):
        issue_reset_link(make.actor(without), user.id)


def test_link_is_consumed_by_one_caller(make: Any, acme: Any, ada: Any) -> None:
    """RP-1: the row count decides, whatever the caller read before."""
    reset = find_reset(acme, token_for(make, ada))
    assert reset is not None
    assert [consume_link(reset), consume_link(reset)] == [True, False]
