"""Deleting one's own account: where allowed, by a fresh sign-in, whole, and never the last administrator's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.operations.directory.users import find_user_by_email
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.store import clock
from app.operations.users.deletion import delete_own_account, preview_account_deletion
from app.operations.users.role_assignments import LastAdministrator
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("context")
ALLOWED = {"user_permissions": {"members_can_delete_account": True}}


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(name="Acme", settings=ALLOWED)


@pytest.fixture
def ada(make: Factory, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


def as_herself(user: Any, *, seconds: int = 5) -> Actor:
    home = user.organization.id
    return Actor(
        "user",
        home,
        home,
        user_id=user.id,
        label=user.email,
        authenticated_at=clock.now() - timedelta(seconds=seconds),
    )


def test_the_account_is_gone_with_its_sign_ins_and_its_owner_told(
    make: Factory, ada: Any, acme: Any, box: Mailbox, deliver: Callable[[], int], database: Database
) -> None:
    """SS-6, OI-1, AU-1: as when an administrator deletes it."""
    token = make.sign_in(ada).token
    assert preview_account_deletion(as_herself(ada)).sessions == 1
    assert delete_own_account(as_herself(ada), email=" Ada@ACME.example ").sessions == 1
    assert find_session(token) is None and find_user_by_email(acme.id, ada.email) is None
    rows = database.query("SELECT action, actor_id, target_id FROM audit_events")
    events = [[part.decode() if isinstance(part, bytes) else part for part in row] for row in rows]
    assert ["user.deleted", ada.public_id, ada.public_id] in events
    deliver()
    assert [(mail["To"], mail["Subject"]) for mail in box.mails] == [
        (ada.email, "Your account at Acme is deleted")
    ]


def test_nothing_goes_where_the_organization_does_not_allow_it(make: Factory, database: Database) -> None:
    user = make.user(make.organization())
    for call in (preview_account_deletion, lambda actor: delete_own_account(actor, email=user.email)):
        with pytest.raises(Forbidden):
            call(as_herself(user))
    assert database.count("users") == 1 and find_user_by_email(user.organization.id, user.email) is not None


def test_it_asks_for_a_fresh_sign_in_and_the_address(ada: Any, acme: Any) -> None:
    """PO-4: whoever finds a browser open ends nobody's account."""
    with pytest.raises(FreshSignInRequired):
        delete_own_account(as_herself(ada, seconds=3600), email=ada.email)
    with pytest.raises(InvalidInput) as refusal:
        delete_own_account(as_herself(ada), email="eve@acme.example")
    assert refusal.value.errors[0].field == "email"
    assert find_user_by_email(acme.id, ada.email) is not None


def test_the_last_administrator_stays(make: Factory, acme: Any) -> None:
    ada, grace = make.user(acme, role="admin"), make.user(acme, role="admin")
    delete_own_account(as_herself(ada), email=ada.email)
    with pytest.raises(LastAdministrator):
        delete_own_account(as_herself(grace), email=grace.email)


def test_root_s_people_stay_while_an_organization_has_nobody_else(make: Factory) -> None:
    """TN-11: an administrator from root who is the last one elsewhere is neither disabled nor deleted."""
    from app.operations.organizations.administrators import add_administrator
    from app.operations.users.deletion import delete_user
    from app.operations.users.user_status import disable_user

    root, acme = make.root(), make.organization()
    visitor, second = make.user(root), make.user(root, role="admin")
    actor = make.actor(root, user=second)
    add_administrator(actor, acme.slug, user_id=visitor.public_id)
    for end in (disable_user, lambda by, _: delete_user(by, visitor.public_id)):
        with pytest.raises(LastAdministrator) as refusal:
            end(actor, visitor.id)
        assert acme.slug in refusal.value.description
    make.user(acme, role="admin")
    delete_user(actor, visitor.public_id)
