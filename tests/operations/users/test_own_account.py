"""Deleting one's own account: the setting, the fresh sign-in, the deleted data, and the last administrator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, select, update

from app.database import ACROSS
from app.extensions import db
from app.models.audit import AuditEvent
from app.models.base import Base
from app.models.organization import Organization
from app.operations.clients.access_decisions import give_access
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.resources import define_resource
from app.operations.directory.users import find_user_by_email
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import delete_organization
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.store import clock
from app.operations.users import erased_labels
from app.operations.users.deletion import delete_own_account, delete_user, preview_account_deletion
from app.operations.users.groups import add_member, create_group
from app.operations.users.invitations import create_invitation
from app.operations.users.role_assignments import LastAdministrator
from app.operations.users.user_changes import update_user
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput
from tests.factories import Factory
from tests.operations.maintenance.test_janitor import write
from tests.support.databases import Database
from tests.support.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("context")
ALLOWED = {"user_permissions": {"members_can_delete_account": True}}


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(name="Acme", settings=ALLOWED)


def actor_of(user: Any, *, seconds: int = 5) -> Actor:
    home = user.organization.id
    return Actor(
        "user",
        home,
        home,
        user_id=user.id,
        label=user.email,
        authenticated_at=clock.now() - timedelta(seconds=seconds),
    )


def test_account_is_deleted_with_sessions_and_user_is_notified(
    make: Factory, ada: Any, acme: Any, box: Mailbox, deliver: Callable[[], int], database: Database
) -> None:
    """SS-6, OI-1, AU-1: as when an administrator deletes it."""
    token = make.sign_in(ada).token
    assert preview_account_deletion(actor_of(ada)).sessions == 1
    assert delete_own_account(actor_of(ada), email=" Ada@ACME.example ").sessions == 1
    assert find_session(token) is None and find_user_by_email(acme.id, ada.email) is None
    rows = database.query("SELECT action, actor_id, target_id FROM audit_events")
    events = [[part.decode() if isinstance(part, bytes) else part for part in row] for row in rows]
    assert ["user.deleted", ada.public_id, ada.public_id] in events
    deliver()
    assert [(mail["To"], mail["Subject"]) for mail in box.mails] == [
        (ada.email, "Your Acme account was deleted")
    ]


@pytest.mark.both
@pytest.mark.parametrize("scanned", [20_000, 1, 2])
def test_deleted_administrator_is_named_in_the_audit_log_only(
    make: Factory, acme: Any, deliver: Callable[[], int], scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else that they created or decided about names them by the id, also under an earlier email."""
    monkeypatch.setattr(erased_labels, "SCANNED", scanned)
    # The first attempt leaves most of them.
    monkeypatch.setattr(erased_labels, "_BATCHES_PER_DELIVERY", 2)
    make.user(acme, role="admin")
    ada, member = make.user(acme, email="first@acme.example", role="admin"), make.user(acme)
    slug, actor = acme.slug, make.actor(acme, user=ada)
    client = make.client(acme, by=actor)
    group = create_group(actor, slug, {"name": "Staff"})
    update_user(actor, ada.public_id, {"email": "ada@acme.example"})
    actor = replace(actor, label="ada@acme.example")
    add_member(actor, slug, group.public_id, {"user_id": member.public_id})
    add_administrator(actor, slug, user_id=member.public_id, role="auditor")
    create_invitation(actor, slug, email="new@acme.example")
    update_settings(actor, slug, {"branding": {"theme": "dark"}})
    api = define_resource(actor, {"identifier": "urn:api", "name": "API", "scopes": [{"name": "api:read"}]})
    give_access(actor, api.public_id, client.client_id, {"scopes": ["api:read"]})
    revoke_credentials(actor, client.client_id)
    delete_own_account(replace(actor_of(ada), label=actor.label), email="ada@acme.example")
    deliver()
    named, by_id = set(), set()
    for table in Base.metadata.sorted_tables:
        text = repr(db.session.execute(select(table).execution_options(**ACROSS)).all())
        named |= {table.name} if "first@acme" in text or "ada@acme" in text else set()
        by_id |= {table.name} if ada.public_id in text else set()
    assert named == {"audit_events"}
    assert by_id >= {
        *("clients", "client_credentials", "client_access", "resources", "scopes", "invitations"),
        *("user_groups", "group_members", "role_assignments", "organizations"),
    }


def test_email_is_erased_also_where_the_audit_log_no_longer_tells_what_its_user_did(
    make: Factory, acme: Any, deliver: Callable[[], int], database: Database
) -> None:
    """An administrator became a member, and the retention of the events ended. The organization may be restored."""
    ada = make.user(acme)
    make.client(acme, by=make.actor(acme, user=ada))
    write(delete(AuditEvent))
    delete_own_account(actor_of(ada), email=ada.email)
    delete_organization(make.actor(acme), acme.slug)
    deliver()
    assert database.query("SELECT created_by FROM clients") == [(ada.public_id,)]


def test_deletion_is_rejected_where_not_allowed(make: Factory, database: Database) -> None:
    user = make.user(make.organization())
    for call in (preview_account_deletion, lambda actor: delete_own_account(actor, email=user.email)):
        with pytest.raises(Forbidden):
            call(actor_of(user))
    assert database.count("users") == 1 and find_user_by_email(user.organization.id, user.email) is not None


def test_deletion_requires_fresh_sign_in_and_the_email(ada: Any, acme: Any) -> None:
    """PO-4: an unattended browser cannot be used to delete the account."""
    with pytest.raises(FreshSignInRequired):
        delete_own_account(actor_of(ada, seconds=3600), email=ada.email)
    with pytest.raises(InvalidInput) as refusal:
        delete_own_account(actor_of(ada), email="eve@acme.example")
    assert refusal.value.errors[0].field == "email"
    assert find_user_by_email(acme.id, ada.email) is not None


def test_last_administrator_cannot_delete_the_account(make: Factory, acme: Any) -> None:
    ada, grace = make.user(acme, role="admin"), make.user(acme, role="admin")
    delete_own_account(actor_of(ada), email=ada.email)
    with pytest.raises(LastAdministrator):
        delete_own_account(actor_of(grace), email=grace.email)


@pytest.mark.parametrize("ending", ["second administrator", "deleted", "moved"])
def test_root_user_who_is_last_administrator_elsewhere_cannot_be_removed(make: Factory, ending: str) -> None:
    """TN-11: a root user who is another organization's last administrator is neither disabled nor deleted."""
    root, acme = make.root(), make.organization()
    visitor, second = make.user(root), make.user(root, role="admin")
    actor = make.actor(root, user=second)
    add_administrator(actor, acme.slug, user_id=visitor.public_id)
    for end in (disable_user, lambda by, _: delete_user(by, visitor.public_id)):
        with pytest.raises(LastAdministrator) as refusal:
            end(actor, visitor.id)
        assert acme.slug in refusal.value.description
    if ending == "second administrator":
        make.user(acme, role="admin")
    elif ending == "deleted":
        delete_organization(actor, acme.slug)
    else:
        write(update(Organization).where(Organization.id == acme.id).values(moved_to="cell-b"))
    disable_user(actor, visitor.id)
    delete_user(actor, visitor.public_id)
