"""PO-4, PO-5: what an old sign-in cannot do, what it still can, and that a client acting for itself has none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.client import Credential
from app.models.organization import Organization
from app.operations.clients import clients, rotations
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential, list_credentials
from app.operations.organizations import roles, settings
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import create_organization
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users import import_uploads, user_changes
from app.operations.users.invitations import create_invitation
from app.rules.actor import Actor
from app.rules.identifiers import new_id
from tests.factories import MadeClient
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.signer import Signer
from tests.support.stored_state import read_state
from tests.support.threads import at_once

pytestmark = pytest.mark.usefixtures("context")
Act = Callable[[Actor], Any]


class World:
    """An organization, its administrator ``ada`` who signed in hours ago, and what she finds there."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.acme = make.organization("acme")
        self.ada = make.user(self.acme, role="admin")
        self.old = make.actor(self.acme, user=self.ada, authenticated_ago_seconds=3 * 3600)
        self.fresh = make.actor(self.acme, user=self.ada)
        self.system = make.system(self.acme)

    def settings(self, path: str, value: Any, *, before: Any = None, **more: Any) -> Act:
        if before is not None:
            settings.update_settings(self.system, "acme", _nested(path, before))
        return lambda actor: settings.update_settings(actor, "acme", _nested(path, value), **more)

    def register(self, *scopes: str, kind: str = "machine") -> Act:
        fields = {"name": "Robot", "type": kind, "scopes": list(scopes)}
        return lambda actor: clients.register_client(actor, fields)

    def update(self, made: MadeClient, **fields: Any) -> Act:
        return lambda actor: clients.update_client(actor, made.client_id, fields)

    def revoke(self, *, spare: bool) -> Act:
        made = self.make.client(self.acme)
        [first] = list_credentials(self.system, made.client_id).items
        if spare:
            create_credential(self.system, made.client_id)
        return lambda actor: revoke_credentials(actor, made.client_id, credential_id=first.public_id)

    def revoke_working(self) -> Act:
        """Revoke the only secret that works beside one that a restore blocked."""
        made = self.make.client(self.acme)
        _block_secrets(self.acme.id)
        new = create_credential(self.system, made.client_id).credential
        return lambda actor: revoke_credentials(actor, made.client_id, credential_id=new.public_id)

    def rotation(self, **terms: Any) -> Act:
        """A rotation whose new secret was revoked."""
        made = self.make.client(self.acme)
        new = create_credential(self.system, made.client_id, {"retire_others_in_seconds": 3600}).credential
        revoke_credentials(self.system, made.client_id, credential_id=new.public_id)
        return lambda actor: rotations.update_rotation(actor, made.client_id, terms)

    def role(self, **permissions: list[str]) -> Act:
        [(key, given)] = permissions.items()
        return lambda actor: roles.create_role(actor, {"id": key, "name": key, "permissions": given})

    def uploaded(self, *, is_dry_run: bool) -> Act:
        pieces = [b"email,roles\nnew@acme.example,admin\n", b""]
        upload = import_uploads.receive_upload(self.system, lambda _: pieces.pop(0), file_format="csv")
        return lambda actor: import_uploads.confirm_upload(actor, upload, is_dry_run=is_dry_run)


@transaction
def _block_secrets(organization_id: str) -> None:
    old = clock.now() - timedelta(days=2)
    db.session.execute(
        update(Credential).where(Credential.organization_id == organization_id).values(created_at=old)
    )
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(secrets_not_before=old + timedelta(days=1), version=Organization.version + 1)
    )
    cache_invalidation.invalidate(organization_id)


def _nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


REAUTHENTICATION = "authentication.sessions.reauthentication_seconds"
POLICY = "authentication.mfa.policy"
ROLES = "authentication.registration.default_roles"
REFUSED: dict[str, Callable[[World], Act]] = {
    "register a client with a management scope": lambda world: world.register("clients:read"),
    "give a client a management scope": lambda world: world.update(
        world.make.machine(world.acme, "users:read"), scopes=["users:read", "users:write"]
    ),
    "let a client with management scopes act without a user": lambda world: world.update(
        world.make.client(world.acme, scopes=["openid", "users:write"]),
        grant_types=["authorization_code", "client_credentials"],
    ),
    "replace keys": lambda world: world.update(
        world.make.client(world.acme, token_endpoint_auth_method="private_key_jwt", jwks=Signer().jwks),
        jwks=Signer("other").jwks,
    ),
    "replace the URL of keys": lambda world: world.update(
        world.make.client(
            world.acme, token_endpoint_auth_method="private_key_jwt", jwks_uri="https://a.example/keys"
        ),
        jwks_uri="https://b.example/keys",
    ),
    "change the authentication method": lambda world: world.update(
        world.make.client(world.acme), token_endpoint_auth_method="private_key_jwt", jwks=Signer().jwks
    ),
    "extend what counts as recent": lambda world: world.settings(REAUTHENTICATION, 86_400),
    "reset what counts as recent": lambda world: world.settings(REAUTHENTICATION, None, before=60),
    "require no second factor": lambda world: world.settings(POLICY, "off"),
    "reset second factors": lambda world: world.settings(POLICY, None, before="off"),
    "give a role more permissions": lambda world: world.settings(
        "user_permissions.roles.clerk", {"name": "Clerk", "permissions": ["users:read"]}
    ),
    "create a role with permissions": lambda world: world.role(helper=["users:read"]),
    "reset a built-in role": lambda world: world.settings(
        "user_permissions.roles.auditor", None, before={"permissions": ["users:read"]}
    ),
    "give members permissions": lambda world: world.settings(
        "user_permissions.members_can_register_clients", True
    ),
    "give new users a role": lambda world: world.settings(ROLES, ["developer"]),
    "add an administrator": lambda world: _administrator(world.make.user(world.acme)),
    "invite an administrator": lambda _: (
        lambda actor: add_administrator(actor, "acme", email="boss@acme.example", role="admin")
    ),
    "invite with a role": lambda _: (
        lambda actor: create_invitation(actor, "acme", email="clerk@acme.example", role="developer")
    ),
    "see a reset link": lambda world: _reset_link(world.make.user(world.acme)),
    "change an email address": lambda world: _new_email(world.make.user(world.acme)),
    "import users": lambda world: world.uploaded(is_dry_run=False),
    "revoke the last secret": lambda world: world.revoke(spare=False),
    "revoke the last secret that works": lambda world: world.revoke_working(),
    "revoke all secrets": lambda world: _revoke_all(world.make.client(world.acme)),
    "finish a rotation without a new secret": lambda world: world.rotation(expires_in_seconds=0),
    "shorten a rotation without a new secret": lambda world: world.rotation(expires_in_seconds=1),
}
ALLOWED: dict[str, Callable[[World], Act]] = {
    "register a client": lambda world: world.register("orders:read"),
    "give a client a scope": lambda world: world.update(
        world.make.machine(world.acme, "users:read"), scopes=["users:read", "orders:read"]
    ),
    "rename a client with management scopes": lambda world: world.update(
        world.make.machine(world.acme, "users:read"), name="Other"
    ),
    "change another setting": lambda world: world.settings("authentication.sessions.max_per_user", 7),
    "preview settings": lambda world: world.settings(POLICY, "off", dry_run=True),
    "keep a setting": lambda world: world.settings(REAUTHENTICATION, 600),
    "narrow a role": lambda world: world.settings(
        "user_permissions.roles.auditor.permissions", ["users:read"]
    ),
    "create a role without permissions": lambda world: world.role(nothing=[]),
    "invite a user": lambda _: lambda actor: create_invitation(actor, "acme", email="user@acme.example"),
    "check an import": lambda world: world.uploaded(is_dry_run=True),
    "revoke one of two secrets": lambda world: world.revoke(spare=True),
}


def _reset_link(user: Any) -> Act:
    return lambda actor: user_changes.issue_user_reset_link(actor, user.public_id)


def _administrator(user: Any) -> Act:
    return lambda actor: add_administrator(actor, "acme", user_id=user.public_id, role="auditor")


def _new_email(user: Any) -> Act:
    return lambda actor: user_changes.update_user(actor, user.public_id, {"email": f"new-{user.email}"})


def _revoke_all(made: MadeClient) -> Act:
    return lambda actor: revoke_credentials(actor, made.client_id)


@pytest.fixture
def world(make: Any) -> World:
    return World(make)


@each("prepare", REFUSED.values(), ids=REFUSED)
def test_old_sign_in_cannot_and_recent_one_can(
    world: World, database: Database, prepare: Callable[[World], Act]
) -> None:
    act = prepare(world)
    before = read_state(database)
    with pytest.raises(FreshSignInRequired):
        act(world.old)
    assert read_state(database) == before
    act(replace(world.fresh, authenticated_at=clock.now()))
    assert read_state(database) != before


@each("prepare", ALLOWED.values(), ids=ALLOWED)
def test_old_sign_in_is_enough(world: World, prepare: Callable[[World], Act]) -> None:
    prepare(world)(world.old)


@each("prepare", REFUSED.values(), ids=REFUSED)
def test_client_that_acts_for_itself_has_no_sign_in(world: World, prepare: Callable[[World], Act]) -> None:
    act = prepare(world)
    act(replace(world.old, kind="client", user_id=None, client_id=new_id(), authenticated_at=None))


def test_sign_in_is_as_recent_as_the_settings_before_the_change_require(context: Flask, world: World) -> None:
    slightly_old = replace(world.old, authenticated_at=world.fresh.authenticated_at)
    settings.update_settings(world.system, "acme", _nested(REAUTHENTICATION, 3_600))
    settings.update_settings(slightly_old, "acme", _nested(REAUTHENTICATION, 60))
    late = world.make.actor(world.acme, user=world.ada, authenticated_ago_seconds=120)
    with pytest.raises(FreshSignInRequired) as refusal:
        settings.update_settings(late, "acme", _nested(REAUTHENTICATION, 3_600))
    assert refusal.value.max_age == 60


def test_invitation_of_a_first_administrator_requires_a_recent_sign_in(make: Any) -> None:
    root = make.root()
    boss = make.user(root, role="admin")
    old = make.actor(root, user=boss, authenticated_ago_seconds=3 * 3600)
    with pytest.raises(FreshSignInRequired):
        create_organization(old, {"name": "One", "admin": {"email": "one@acme.example"}})
    assert create_organization(old, {"name": "Two"}).invitation is None


def test_last_of_two_secrets_revoked_at_once_requires_a_recent_sign_in(app: Flask, world: World) -> None:
    for _ in range(3):
        made = world.make.client(world.acme)
        create_credential(world.system, made.client_id)
        secrets = [secret.public_id for secret in list_credentials(world.system, made.client_id).items]

        def revoke(secret: str, client_id: str = made.client_id) -> object:
            try:
                return revoke_credentials(world.old, client_id, credential_id=secret)
            except FreshSignInRequired as refusal:
                return refusal

        results = at_once(app, [functools.partial(revoke, secret) for secret in secrets])
        assert sorted(results) == ["FreshSignInRequired", "RevokedCredentials"]
