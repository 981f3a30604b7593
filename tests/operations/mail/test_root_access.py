"""Notices about root acting in an organization: once an hour per user, if enabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.mail import delivery, emails
from app.operations.organizations.organizations import create_organization, delete_organization
from app.operations.organizations.settings import update_settings
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]


@pytest.fixture
def visitor(make: Factory) -> Actor:
    root = make.root()
    return make.actor(root, user=make.user(root, email="op@gatehouse.example", role="admin"))


@pytest.fixture(autouse=True)
def delivered(box: Mailbox) -> None:
    delivery.register()


def act(actor: Actor, organization: Any, theme: str) -> None:
    update_settings(actor, organization.slug, {"branding": {"theme": theme}})


def test_root_access_notifies_each_administrator_once_an_hour(
    make: Factory, acme: Any, visitor: Actor, box: Mailbox, deliver: Deliver
) -> None:
    ada, grace = make.user(acme, role="admin"), make.user(acme, role="admin")
    make.user(acme, role="auditor")
    deliver()
    box.mails.clear()
    act(visitor, acme, "dark")
    act(visitor, acme, "light")
    deliver()
    told = [(mail["To"], mail["Subject"]) for mail in box.mails]
    assert sorted(told) == sorted(
        (user.email, "An instance administrator made changes in Acme") for user in (ada, grace)
    )
    assert "First change: settings.updated." in plain(box.mails[0])


def test_changes_before_the_first_administrator_hide_no_later_ones(
    make: Factory, visitor: Actor, box: Mailbox, deliver: Deliver
) -> None:
    """An organization that root creates has no administrator until one accepts the invitation."""
    deliver()
    assert not [mail for mail in box.mails if "An instance administrator" in mail["Subject"]], (
        "the creation of the organization notifies nobody"
    )
    fields = {"name": "New", "id": "fresh", "admin": {"email": "ada@acme.example"}}
    create_organization(visitor, fields)
    new = get_organization_by_slug("fresh")
    ada = make.user(new, role="admin")
    deliver()
    box.mails.clear()
    act(visitor, new, "dark")
    deliver()
    assert [mail["To"] for mail in box.mails] == [ada.email]


def test_own_users_and_system_cause_no_root_notice(
    make: Factory, acme: Any, visitor: Actor, database: Database
) -> None:
    ada = make.user(acme, role="admin")
    before = database.count("outbox")
    act(make.actor(acme, user=ada), acme, "dark")
    act(make.system(acme), acme, "light")
    root = make.root()
    act(visitor, root, "dark")
    assert database.count("outbox") == before


def test_root_notices_can_be_disabled(make: Factory, visitor: Actor, box: Mailbox, deliver: Deliver) -> None:
    quiet = make.organization(settings={"audit": {"notify_root_access": False}})
    make.user(quiet, role="admin")
    deliver()
    box.mails.clear()
    act(visitor, quiet, "dark")
    deliver()
    assert box.mails == []


def test_root_disabling_notices_is_itself_reported(
    make: Factory, acme: Any, visitor: Actor, box: Mailbox, deliver: Deliver
) -> None:
    ada = make.user(acme, role="admin")
    deliver()
    box.mails.clear()
    update_settings(visitor, acme.slug, {"audit": {"notify_root_access": False}})
    act(visitor, acme, "dark")
    deliver()
    assert [mail["To"] for mail in box.mails] == [ada.email]


def test_root_enabling_notices_is_not_reported(
    make: Factory, visitor: Actor, box: Mailbox, deliver: Deliver
) -> None:
    quiet = make.organization(settings={"audit": {"notify_root_access": False}})
    make.user(quiet, role="admin")
    deliver()
    box.mails.clear()
    update_settings(visitor, quiet.slug, {"audit": {"notify_root_access": True}})
    deliver()
    assert box.mails == []


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "own administrator"])
def test_administrators_are_told_that_their_organization_was_deleted(
    make: Factory,
    acme: Any,
    visitor: Actor,
    box: Mailbox,
    deliver: Deliver,
    database: Database,
    is_root: bool,
) -> None:
    """Other emails of a deleted organization are dropped: by workers of earlier releases, all of the kind ``mail``."""
    ada, grace = make.user(acme, role="admin"), make.user(acme, role="admin")
    deliver()
    box.mails.clear()
    act(visitor, acme, "dark")
    transaction(emails.send)(acme, ada.email, "test", {"url": "https://id.example.com"})
    actor = visitor if is_root else make.actor(acme, user=ada)
    record = delete_organization(actor, acme.slug)
    kinds = [bytes(row[0]) for row in database.query("SELECT kind FROM outbox")]
    assert kinds.count(b"mail_about_deletion") == 2
    deliver()
    told = [(mail["To"], mail["Subject"]) for mail in box.mails]
    assert sorted(told) == sorted((user.email, "Acme was deleted") for user in (ada, grace))
    text = plain(box.mails[0])
    assert f"{actor.label} deleted the organization Acme" in text
    assert record.purge_at is not None and f"{record.purge_at:%H:%M} UTC. Then its data is purged" in text
