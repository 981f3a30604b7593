"""Administrators and invitations: adding and removing them, and which links are valid."""

from __future__ import annotations

import functools
from datetime import timedelta

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.clients.clients import update_client
from app.operations.directory import lookups
from app.operations.directory.users import create_user, find_user_by_email, get_user
from app.operations.organizations import administrators
from app.operations.store import clock
from app.operations.store.rows import PageRequest
from app.operations.users import invitations
from app.operations.users.deletion import delete_user
from app.operations.users.invitations import InvitationEnded
from app.operations.users.role_assignments import AlreadyAssigned, LastAdministrator, assign_role
from app.operations.users.users import disable_user
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.threads import at_once


def test_new_administrator_has_permissions_immediately(context: Flask, make: Factory) -> None:
    acme = make.organization()
    ada = make.user(acme)
    added = administrators.add_administrator(make.actor(acme), acme.slug, user_id=ada.public_id)
    assert added.admin is not None and added.link is None
    assert (added.admin.role, added.admin.email, added.admin.status) == ("admin", ada.email, "active")
    assert "settings:write" in lookups.get_user_permissions(acme, acme.id, ada.id)
    assert [
        admin.public_id for admin in administrators.list_administrators(make.actor(acme), acme.slug).items
    ] == [added.admin.public_id]


def test_known_email_is_assigned_and_unknown_one_invited(context: Flask, make: Factory) -> None:
    acme = make.organization()
    ada = make.user(acme, email="Ada@Example.com")
    known = administrators.add_administrator(
        make.actor(acme), acme.slug, email="ada@EXAMPLE.com", role="auditor"
    )
    assert known.admin is not None and known.admin.user_id == ada.id
    unknown = administrators.add_administrator(
        make.actor(acme), acme.slug, email="bob@example.com", name="Bob"
    )
    assert unknown.admin is None and unknown.link is not None and "/invite/gth_iv_" in unknown.link


def test_unverified_email_cannot_be_assigned_a_role(context: Flask, make: Factory) -> None:
    acme = make.organization()
    create_user(acme.id, email="victim@example.com")
    with pytest.raises(Conflict) as refusal:
        administrators.add_administrator(make.actor(acme), acme.slug, email="victim@example.com")
    assert refusal.value.code == "email_unverified"
    told = refusal.value.description.rpartition(": ")[2].rstrip(".")
    assert administrators.add_administrator(make.actor(acme), acme.slug, user_id=told).admin is not None


@each(
    ("fields", "wrong"),
    [
        ({}, {"user_id": "required"}),
        ({"user_id": "usr_x", "email": "a@example.com"}, {"email": "not_allowed"}),
        ({"user_id": 5}, {"user_id": "wrong_type"}),
        ({"user_id": "usr_nobody"}, {"user_id": "unknown_user"}),
        ({"email": "nobody"}, {"email": "invalid_email"}),
        ({"email": "a@example.com", "role": "boss"}, {"role": "unknown_role"}),
        ({"email": "a@example.com", "role": ""}, {"role": "too_short"}),
        ({"email": "a@example.com", "role": ["admin"]}, {"role": "wrong_type"}),
        ({"email": "a@example.com", "name": "x" * 101}, {"name": "too_long"}),
        ({"mail": "a@example.com"}, {"mail": "unknown_field"}),
        ({"email": "a@example.com", "organization_id": "other"}, {"organization_id": "unknown_field"}),
    ],
)
def test_invalid_fields_are_rejected_by_name(
    context: Flask, make: Factory, fields: dict[str, object], wrong: dict[str, str]
) -> None:
    """TN-12."""
    acme = make.organization()
    with pytest.raises(InvalidInput) as refusal:
        administrators.add_administrator(make.actor(acme), acme.slug, **fields)
    assert {error.field: error.code for error in refusal.value.errors} == wrong


def test_role_does_not_outlive_a_user_who_is_deleted_meanwhile(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = make.organization()
    ada = make.user(acme)
    read_before = get_user(acme.id, ada.id)
    delete_user(make.actor(acme), ada.public_id)
    monkeypatch.setattr(administrators, "get_user", lambda *_: read_before)
    with pytest.raises(NotFound):
        administrators.add_administrator(make.actor(acme), acme.slug, user_id=ada.public_id)
    assert not administrators.list_administrators(make.actor(acme), acme.slug).items


def test_role_cannot_be_assigned_twice(context: Flask, make: Factory) -> None:
    acme = make.organization()
    ada = make.user(acme, role="admin")
    with pytest.raises(AlreadyAssigned):
        administrators.add_administrator(make.actor(acme), acme.slug, user_id=ada.public_id)


@pytest.mark.parametrize("role", ["admin", "auditor", "developer"])
def test_role_with_missing_permissions_cannot_be_assigned_or_removed(
    context: Flask, make: Factory, database: Database, role: str
) -> None:
    """TN-11."""
    acme = make.organization()
    make.user(acme, role="admin")
    ada = make.user(acme)
    personnel = make.actor(acme, "admins:read", "admins:write")
    before = database.count("role_assignments")
    with pytest.raises(Forbidden):
        administrators.add_administrator(personnel, acme.slug, user_id=ada.public_id, role=role)
    with pytest.raises(Forbidden):
        administrators.add_administrator(personnel, acme.slug, email="new@example.com", role=role)
    held = assign_role(make.system(acme), acme.id, acme.id, ada.id, role)
    with pytest.raises(Forbidden):
        administrators.remove_administrator(personnel, acme.slug, public_id("adm", held))
    assert database.count("role_assignments") == before + 1 and database.count("invitations") == 0


def test_user_of_another_organization_is_not_found_except_for_root(context: Flask, make: Factory) -> None:
    """TN-6."""
    acme, globex, root = make.organization(), make.organization(), make.root()
    stranger, boss = make.user(globex), make.user(root, role="admin")
    for user in (stranger, boss):
        with pytest.raises(InvalidInput) as refusal:
            administrators.add_administrator(make.actor(acme), acme.slug, user_id=user.public_id)
        assert refusal.value.errors[0].code == "unknown_user"
    helper = make.user(root)
    added = administrators.add_administrator(
        make.actor(root, user=boss), acme.slug, user_id=helper.public_id, role="auditor"
    )
    assert added.admin is not None and added.admin.user_organization == "root"
    assert "audit:read" in lookups.get_user_permissions(acme, root.id, helper.id)
    assert lookups.get_user_permissions(globex, root.id, helper.id) == frozenset()


def test_removed_administrator_has_no_permissions(context: Flask, make: Factory) -> None:
    acme = make.organization()
    make.user(acme, role="admin")
    ada = make.user(acme, role="admin")
    admin = next(
        a
        for a in administrators.list_administrators(make.actor(acme), acme.slug).items
        if a.user_id == ada.id
    )
    administrators.remove_administrator(make.actor(acme), acme.slug, admin.public_id)
    assert lookups.get_user_permissions(acme, acme.id, ada.id) == frozenset()
    with pytest.raises(NotFound):
        administrators.remove_administrator(make.actor(acme), acme.slug, admin.public_id)


def test_last_administrator_cannot_be_removed(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    make.user(acme, role="admin")
    make.user(acme, role="auditor")
    admin = next(
        a for a in administrators.list_administrators(make.actor(acme), acme.slug).items if a.role == "admin"
    )
    audited = database.count("audit_events")
    with pytest.raises(LastAdministrator) as refusal:
        administrators.remove_administrator(make.actor(acme), acme.slug, admin.public_id)
    assert (refusal.value.status, refusal.value.code) == (409, "last_administrator")
    assert database.count("role_assignments") >= 2 and database.count("audit_events") == audited


@pytest.mark.mariadb
@pytest.mark.race
def test_administrators_removing_each_other_concurrently_leave_one(
    app: Flask, make: Factory, database: Database
) -> None:
    """SQLite has a single writer, so it cannot show this race."""
    for _ in range(10):
        acme = make.organization()
        make.user(acme, role="admin")
        make.user(acme, role="admin")
        with app.app_context():
            both = administrators.list_administrators(make.actor(acme), acme.slug).items
        remove = functools.partial(administrators.remove_administrator, make.actor(acme), acme.slug)
        results = at_once(app, [functools.partial(remove, admin.public_id) for admin in both])
        assert sorted(results) == ["AdministratorRecord", "LastAdministrator"]


@pytest.mark.mariadb
@pytest.mark.race
def test_invitation_accepted_concurrently_creates_one_user(
    app: Flask, make: Factory, database: Database
) -> None:
    """SQLite has a single writer, so it cannot show this race."""
    acme = make.organization()
    with app.app_context():
        token = _token(
            invitations.create_invitation(
                make.actor(acme), acme.slug, email="bob@example.com", role="developer"
            ).link
        )
    results = at_once(
        app, [lambda: invitations.accept_invitation(token, name="Bob", password_hash="$argon2id$test")] * 20
    )
    assert results.count("UUID") == 1 and set(results) == {"UUID", "InvitationEnded"}


def test_invitation_creates_user_with_role_once(context: Flask, make: Factory) -> None:
    acme = make.organization()
    new = invitations.create_invitation(
        make.actor(acme), acme.slug, email="Bob@Example.com", name="Bob", role="developer"
    )
    token = _token(new.link)
    found = invitations.find_invitation(token)
    assert found is not None and (found.email, found.role, found.organization_slug) == (
        "Bob@Example.com",
        "developer",
        acme.slug,
    )
    user_id = invitations.accept_invitation(token, name="Bob Martin", password_hash="$argon2id$test")
    user = get_user(acme.id, user_id)
    assert user.name == "Bob Martin"
    assert not user.email_verified, "the inviter had the link too"
    assert lookups.get_user_roles(acme.id, acme.id, user_id) == ("developer",)
    assert invitations.find_invitation(token) is None
    with pytest.raises(InvitationEnded):
        invitations.accept_invitation(token, name="Bob", password_hash="$argon2id$test")


def test_replaced_or_withdrawn_invitation_is_invalid(context: Flask, make: Factory) -> None:
    acme = make.organization()
    admin = make.actor(acme)
    first = invitations.create_invitation(admin, acme.slug, email="bob@example.com")
    second = invitations.create_invitation(admin, acme.slug, email="BOB@example.com")
    assert invitations.find_invitation(_token(first.link)) is None
    assert invitations.find_invitation(_token(second.link)) is not None
    listed = invitations.list_invitations(admin, acme.slug).items
    assert [invitation.public_id for invitation in listed] == [second.invitation.public_id]
    invitations.revoke_invitation(admin, acme.slug, second.invitation.public_id)
    assert invitations.find_invitation(_token(second.link)) is None
    with pytest.raises(NotFound):
        invitations.revoke_invitation(admin, acme.slug, second.invitation.public_id)
    with pytest.raises(InvitationEnded):
        invitations.accept_invitation(_token(second.link), name="Bob", password_hash="$argon2id$test")
    assert find_user_by_email(acme.id, "bob@example.com") is None


@pytest.mark.parametrize(
    "way", ["disabled", "deleted", "role removed", "role weaker", "client disabled", "client weaker"]
)
def test_invitation_is_invalid_once_its_sender_could_not_send_it(
    context: Flask, make: Factory, way: str
) -> None:
    """TN-11: otherwise a removed administrator comes back by an invitation that they sent to themselves."""
    acme = make.organization()
    system = make.system(acme)
    make.user(acme, role="admin")
    sender = make.user(acme, role="admin")
    client = make.machine(acme)
    actor = make.actor(acme, user=sender)
    if way.startswith("client"):
        actor = replace(actor, kind="client", user_id=None, client_id=client.registered.client.id)
    link = invitations.create_invitation(actor, acme.slug, email="bob@example.com", role="admin").link
    assert invitations.find_invitation(_token(link)) is not None
    if way == "client disabled":
        update_client(system, client.client_id, {"status": "disabled"})
    elif way == "client weaker":
        update_client(system, client.client_id, {"scopes": ["admins:read", "users:write"]})
    elif way == "disabled":
        disable_user(system, sender.id)
    elif way == "deleted":
        delete_user(system, sender.public_id)
    else:
        if way == "role weaker":
            assign_role(system, acme.id, acme.id, sender.id, "developer")
        (held,) = (
            each
            for each in administrators.list_administrators(system, acme.slug, filters={"role": "admin"}).items
            if each.user_id == sender.id
        )
        administrators.remove_administrator(system, acme.slug, held.public_id)
    assert invitations.find_invitation(_token(link)) is None
    with pytest.raises(InvitationEnded):
        invitations.accept_invitation(_token(link), name="Bob", password_hash="$argon2id$test")
    assert find_user_by_email(acme.id, "bob@example.com") is None


def test_invitation_of_an_actor_of_root_is_valid_while_they_may_act_here(
    context: Flask, make: Factory
) -> None:
    root, acme = make.root(), make.organization()
    sender = make.user(root, role="admin")
    make.user(root, role="admin")
    actor = replace(make.actor(root, user=sender), is_root=True)
    link = invitations.create_invitation(actor, acme.slug, email="bob@example.com", role="admin").link
    assert invitations.find_invitation(_token(link)) is not None
    disable_user(make.system(root), sender.id)
    assert invitations.find_invitation(_token(link)) is None
    client = make.machine(root)
    actor = replace(actor, kind="client", user_id=None, client_id=client.registered.client.id)
    link = invitations.create_invitation(actor, acme.slug, email="eve@example.com", role="admin").link
    assert invitations.find_invitation(_token(link)) is not None
    scopes = set(client.registered.client.scopes) - {"organizations:read", "organizations:write"}
    update_client(make.system(root), client.client_id, {"scopes": sorted(scopes)})
    assert invitations.find_invitation(_token(link)) is None, "it acts in root only"


def test_invitation_expires(context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = make.organization()
    token = _token(invitations.create_invitation(make.actor(acme), acme.slug, email="bob@example.com").link)
    later = clock.now() + timedelta(days=7, seconds=1)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert invitations.find_invitation(token) is None


def test_invitation_token_is_not_stored(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    token = _token(invitations.create_invitation(make.actor(acme), acme.slug, email="bob@example.com").link)
    assert token.encode() not in database.dump()


@each("token", ["", "x", "gth_iv_", "gth_ss_" + "0" * 59, "\x00", "é" * 40])
def test_malformed_invitation_token_is_not_found(context: Flask, make: Factory, token: str) -> None:
    assert invitations.find_invitation(token) is None


def test_foreign_and_nonexistent_administrators_give_the_same_error(context: Flask, make: Factory) -> None:
    acme, globex = make.organization(), make.organization()
    make.user(globex, role="admin")
    foreign = administrators.list_administrators(make.actor(globex), globex.slug).items[0].public_id
    for admin_id in (foreign, public_id("adm", new_id()), "adm_x", ""):
        with pytest.raises(NotFound) as refusal:
            administrators.remove_administrator(make.actor(acme), acme.slug, admin_id)
        assert refusal.value.description == "There is no such administrator."
    with pytest.raises(NotFound):
        administrators.list_administrators(make.actor(acme), globex.slug)


def test_administrators_are_listed_in_pages(context: Flask, make: Factory) -> None:
    acme = make.organization()
    for _ in range(3):
        make.user(acme, role="developer")
    admin = make.actor(acme)
    first = administrators.list_administrators(admin, acme.slug, PageRequest(2))
    rest = administrators.list_administrators(admin, acme.slug, PageRequest(2, first.next_cursor_key))
    assert len(first.items) == 2 and len(rest.items) == 1 and rest.next_cursor_key is None
    assert administrators.list_administrators(admin, acme.slug, filters={"role": "admin"}).items == ()


def _token(link: str) -> str:
    return link.rpartition("/")[2]
