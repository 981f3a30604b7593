"""Shortened lifetimes of links, invitations and logs apply to existing ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from app.extensions import db
from app.models.audit import AuditEvent, FailedRequest, RevocationReceipt, Webhook, WebhookDelivery
from app.models.user import AccountLink, Invitation
from app.operations.audit.audit_events import export_audit_events, list_activity, list_audit_events
from app.operations.audit.failed_requests import list_failed_requests
from app.operations.directory.lookups import get_organization_by_id
from app.operations.maintenance.janitor import purge_expired
from app.operations.organizations.administrators import RoleInUse, require_roles_unused
from app.operations.organizations.settings import update_settings
from app.operations.store import clock, outbox
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import transaction
from app.operations.users.invitations import (
    InvitationEnded,
    accept_invitation,
    create_invitation,
    find_invitation,
    list_invitations,
)
from app.operations.users.password_resets import ResetEnded, find_reset, issue_reset_link, reset_password
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from tests.factories import Factory
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
DAY = timedelta(days=1)
WEBHOOK = UUID(int=1)


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization()


def change(make: Factory, organization: Any, **sections: Any) -> Any:
    """Return the organization with changed settings."""
    update_settings(make.system(organization), organization.slug, sections)
    return get_organization_by_id(organization.id)


@transaction
def made_ago(model: Any, ago: timedelta) -> None:
    """Move the creation time of every row into the past."""
    db.session.execute(update(model).values(created_at=clock.now() - ago))


def test_invitation_expires_under_shortened_lifetime(make: Factory, acme: Any) -> None:
    link = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example").link
    assert link is not None
    token = link.rpartition("/")[2]
    made_ago(Invitation, 2 * DAY)
    assert find_invitation(token) is not None
    with pytest.raises(RoleInUse):
        require_roles_unused(acme.id, ["member"])
    change(make, acme, authentication={"registration": {"invitation_ttl_seconds": 86_400}})
    assert find_invitation(token) is None
    assert list_invitations(make.actor(acme), acme.slug).items == ()
    # It could not be withdrawn either, so it keeps no role.
    require_roles_unused(acme.id, ["member"])
    with pytest.raises(InvitationEnded):
        accept_invitation(token, name="Grace", password_hash="x")


def test_invitation_shows_shortened_expiry(make: Factory, acme: Any) -> None:
    made = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example").invitation
    change(make, acme, authentication={"registration": {"invitation_ttl_seconds": 86_400}})
    [shown] = list_invitations(make.actor(acme), acme.slug).items
    assert shown.expires_at == made.created_at + DAY
    change(make, acme, authentication={"registration": {"invitation_ttl_seconds": 30 * 86_400}})
    [shown] = list_invitations(make.actor(acme), acme.slug).items
    assert shown.expires_at == made.expires_at


def test_reset_link_expires_under_shortened_lifetime(make: Factory, acme: Any) -> None:
    """RP-1."""
    user = make.user(acme)
    link = issue_reset_link(make.actor(acme), user.id).link
    assert link is not None
    token = link.rpartition("/")[2]
    made_ago(AccountLink, timedelta(minutes=20))
    assert find_reset(acme, token) is not None
    shorter = change(make, acme, authentication={"recovery": {"reset_ttl_seconds": 600}})
    assert find_reset(shorter, token) is None
    with pytest.raises(ResetEnded):
        reset_password(shorter, token, "a wholly different password")


def failed(organization: Any, client: Any, ago: timedelta, behind: timedelta = 0 * DAY) -> dict[str, Any]:
    """Create a failed request in the past with a retention of two weeks, by a machine whose clock is ``behind``."""
    at = clock.now() - ago
    return {
        "organization_id": organization.id,
        "id": first_id_at(at - behind),
        "client_id": client.registered.client.id,
        "at": at,
        "request_id": f"req_{ago.days}",
        "endpoint": "token",
        "method": "POST",
        "status": 400,
        "error": "invalid_grant",
        "description": "",
        "cause": "code_unknown",
        "expected": [],
        "parameters": {},
        "expires_at": at + 14 * DAY,
    }


@transaction
def add_logs(organization: Any) -> None:
    """Add deliveries and receipts of several ages in days, which expire in a year.

    Machines whose clocks are behind created two of them, and sent one again.
    """
    now, of = clock.now(), {"organization_id": organization.id}
    long_ago = first_id_at(now - 50 * DAY)
    hook = {"url": "https://hook.example", "description": "", "event_types": ["*"], "status": "disabled"}
    db.session.execute(
        insert(Webhook).values(id=WEBHOOK, version=1, created_at=now, updated_at=now, **hook, **of)
    )
    for model, age, values in (
        (WebhookDelivery, 3, {"message_id": long_ago, "id": long_ago}),
        (
            WebhookDelivery,
            20,
            {"message_id": outbox.enqueue(organization.id, "webhook", {}, receiver="whk_")},
        ),
        (WebhookDelivery, 21, {"message_id": long_ago, "attempted_at": now - DAY}),
        (WebhookDelivery, 5, {"message_id": long_ago}),
        (RevocationReceipt, 20, {"id": long_ago}),
        (RevocationReceipt, 40, {}),
    ):
        at = now - age * DAY
        if model is WebhookDelivery:
            values |= {"webhook_id": WEBHOOK, "event_type": "user.updated", "body": {}, "status": "pending"}
            values |= {"attempts": 0}
        else:
            values |= {
                "kind": "user",
                "subject": "usr_",
                "issued_before": at,
                "sessions": False,
                "counts": {},
            }
            values |= {"settled_at": at}
        ends = now + 365 * DAY
        db.session.execute(
            insert(model).values(
                {"id": first_id_at(at), "created_at": at, "expires_at": ends, **values, **of}
            )
        )


def test_deliveries_and_receipts_are_deleted_under_shortened_retention(
    make: Factory, acme: Any, database: Database
) -> None:
    """Except for deliveries of the last four days and those that were sent again since."""
    make.root()
    add_logs(acme)
    change(make, acme, audit={"log_retention_days": 1, "retention_days": 30})
    assert purge_expired(Actor.system("", "janitor"), pause=0) is not None
    assert (database.count("webhook_deliveries"), database.count("revocation_receipts")) == (3, 1)


def test_failed_requests_are_deleted_under_shortened_retention(
    make: Factory, acme: Any, database: Database
) -> None:
    make.root()
    client, other = make.client(acme), make.organization()
    rows = [failed(acme, client, 1 * DAY, behind=30 * DAY), failed(acme, client, 5 * DAY)]
    rows += [failed(other, make.client(other), 5 * DAY)]

    @transaction
    def act() -> None:
        db.session.execute(insert(FailedRequest), rows)

    act()
    assert len(list_failed_requests(make.actor(acme)).items) == 2
    change(make, acme, audit={"log_retention_days": 3})
    assert [entry.request_id for entry in list_failed_requests(make.actor(acme)).items] == ["req_1"]
    assert purge_expired(Actor.system("", "janitor"), pause=0) is not None
    assert database.count("failed_requests") == 2
    assert len(list_failed_requests(make.actor(other)).items) == 1


def test_audit_events_are_hidden_under_shortened_retention(make: Factory, acme: Any) -> None:
    """Rows that the janitor has not deleted yet are not shown."""
    user = make.user(acme)
    at = clock.now() - 40 * DAY
    values = {"action": "sign_in.failed", "actor_kind": "anonymous", "actor_label": ""}

    @transaction
    def act() -> None:
        of = {"organization_id": acme.id, "actor_organization": acme.id, "target_id": user.public_id}
        db.session.execute(insert(AuditEvent).values(id=first_id_at(at), at=at, **values, **of))

    act()
    actor = make.actor(acme, user=user)

    def shown() -> list[bool]:
        pages = (
            list_audit_events(actor, PageRequest(100)).items,
            export_audit_events(actor),
            list_activity(actor).items,
        )
        return [any(entry.at == at for entry in page) for page in pages]

    assert shown() == [True, True, True]
    change(make, acme, audit={"retention_days": 30})
    assert shown() == [False, False, False]
