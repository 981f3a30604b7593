"""Setup: create the root organization, the first organization, their administrator and the first management client.

A new installation has no accounts, passwords or keys (BS-1). Setup succeeds only once, because its marker row can be
inserted only once. Afterwards the setup page and this operation respond as if they did not exist.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import delete

from app.extensions import db
from app.models.audit import InstanceFact
from app.operations.clients.clients import register_client
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.directory.users import create_user
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import create_organization, insert_organization
from app.operations.sign_in.passwords import hash_new_password
from app.operations.store import audit, clock
from app.operations.store.transactions import read, savepoint, transaction
from app.rules import identifiers
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN, PERMISSIONS, ROOT_ONLY
from app.rules.errors import NotFound
from app.rules.fields import ValidationErrors, text_problem
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import email_problem
from app.rules.organizations import settings
from app.rules.organizations.organizations import ROOT_SLUG, slug_from_name, slug_problem
from app.rules.sign_in.passwords import find_password_errors

TOKEN_LIFETIME = timedelta(hours=1)
_DONE = "set-up"
_TOKEN = "set-up token"
# A setup token belongs to no organization yet. No organization can have this routing key.
_NO_ORGANIZATION = "00000000"
_ALL_PERMISSIONS = frozenset(PERMISSIONS) | frozenset(ROOT_ONLY)
# The metadata of a root client that may use the whole management API with client credentials.
_MANAGEMENT_CLIENT: Mapping[str, Any] = {
    "name": "Management",
    "type": "machine",
    "grant_types": ["client_credentials"],
    "scopes": sorted(_ALL_PERMISSIONS),
    "trust": "first_party",
    "description": "Calls the management API. Created by setup.",
}


class SetupResult(Struct, frozen=True):
    """The objects that setup created; ``client_secret`` is in clear text only here."""

    user_id: UUID
    email: str
    organization_id: str
    organization_name: str
    client_id: str
    client_secret: str


@read
def is_set_up() -> bool:
    """Return whether the root organization exists."""
    return db.session.get(InstanceFact, _DONE) is not None


@transaction
def issue_setup_token() -> str:
    """Create a setup token, valid once for an hour, and invalidate the previous one. Raises NotFound after setup."""
    if is_set_up():
        raise _not_found()
    token = identifiers.new_token(identifiers.SETUP, _NO_ORGANIZATION)
    now = clock.now()
    db.session.execute(delete(InstanceFact).where(InstanceFact.name == _TOKEN))
    expires_at = (now + TOKEN_LIFETIME).isoformat()
    value = {"digest": identifiers.digest(token).hex(), "expires_at": expires_at}
    db.session.add(InstanceFact(name=_TOKEN, value=value, updated_at=now))
    return token


@read
def is_setup_token(token: str) -> bool:
    """Return whether the token is valid now, in constant time for all well-formed tokens."""
    parsed = identifiers.parse_token(token)
    fact = db.session.get(InstanceFact, _TOKEN)
    if parsed is None or parsed.kind != identifiers.SETUP or fact is None:
        return False
    is_same = hmac.compare_digest(fact.value["digest"], identifiers.digest(token).hex())
    return is_same and clock.now() < datetime.fromisoformat(fact.value["expires_at"])


@transaction
def revoke_setup_token(token: str) -> bool:
    """Revoke the setup token and return whether it was valid. Restarting the service issues a new one."""
    if not is_setup_token(token):
        return False
    db.session.execute(delete(InstanceFact).where(InstanceFact.name == _TOKEN))
    return True


def complete_setup(
    token: str | None,
    *,
    email: str,
    name: str,
    password: str,
    organization_name: str,
    organization_id: str | None = None,
    ip_address: str | None = None,
    request_id: str | None = None,
) -> SetupResult:
    """Create the root organization, the first organization, their administrator and the first management client.

    The administrator gets an account in both, with the same email address and password, because accounts belong to one
    organization and the apps of the first one do not accept root's.
    ``token`` is None on the command line, whose user has access to the keys anyway. Raises NotFound if setup is
    complete or the token is not valid, InvalidInput naming every invalid field. Audit: ``instance.set_up`` in root,
    then ``organization.created`` and ``client.registered``.
    """
    if is_set_up() or (token is not None and not is_setup_token(token)):
        raise _not_found()
    slug = _check_fields(email, name, password, organization_name, organization_id)
    # Hash the password before the transaction, because it takes too long for one.
    password_hash = hash_new_password(
        settings.default_settings(), password, personal=(email, name, organization_name)
    )
    administrator = _Administrator(email, name, password_hash)
    setup = replace(Actor.system(_NO_ORGANIZATION, "set-up"), ip_address=ip_address, request_id=request_id)
    return _set_up(setup, token, administrator, {"name": organization_name, "id": slug})


class _Administrator(Struct, frozen=True):
    email: str
    name: str
    password_hash: str


@transaction
def _set_up(
    actor: Actor, token: str | None, administrator: _Administrator, organization: Mapping[str, Any]
) -> SetupResult:
    """Create everything at once: a setup that has begun cannot be repeated."""
    system, user_id = _create_root(actor, token, administrator)
    root = replace(
        system,
        kind="user",
        permissions=_ALL_PERMISSIONS,
        user_id=user_id,
        label=administrator.email.strip(),
        authenticated_at=clock.now(),
    )
    created = create_organization(root, organization).organization
    first_id = get_organization_by_slug(created.slug).id
    first = replace(actor, organization_id=first_id, home_organization_id=first_id)
    _create_administrator(first, created.slug, administrator)
    registered = register_client(root, _MANAGEMENT_CLIENT)
    if registered.secret is None:
        raise RuntimeError("a machine client has a secret")
    return SetupResult(
        user_id=user_id,
        email=root.label,
        organization_id=created.slug,
        organization_name=created.name,
        client_id=registered.client.client_id,
        client_secret=registered.secret,
    )


@transaction
def _create_root(actor: Actor, token: str | None, administrator: _Administrator) -> tuple[Actor, UUID]:
    """Return the service as an actor in the new root organization, and the id of its administrator."""
    # This row can be inserted only once, which decides between concurrent requests.
    with savepoint(on_duplicate=_not_found()):
        db.session.add(InstanceFact(name=_DONE, value={}, updated_at=clock.now()))
    if token is not None and not is_setup_token(token):
        raise _not_found()
    db.session.execute(delete(InstanceFact).where(InstanceFact.name == _TOKEN))
    root_id = insert_organization(actor, slug=ROOT_SLUG, name="Gatehouse", is_root=True)
    system = replace(actor, organization_id=root_id, home_organization_id=root_id, is_root=True)
    user_id = _create_administrator(system, ROOT_SLUG, administrator)
    audit.record_user_event(system, "instance.set_up", user_id)
    return system, user_id


def _create_administrator(actor: Actor, slug: str, administrator: _Administrator) -> UUID:
    # The token came from the terminal and its holder entered the email address, so it needs no verification.
    user_id = create_user(
        actor.organization_id,
        email=administrator.email,
        name=administrator.name,
        password_hash=administrator.password_hash,
        email_verified=True,
    )
    add_administrator(actor, slug, user_id=public_id("usr", user_id), role=ADMIN)
    return user_id


def _check_fields(
    email: str, name: str, password: str, organization_name: str, organization_id: str | None
) -> str:
    findings = ValidationErrors()
    findings.add_problem("email", email_problem(email))
    findings.add_problem("name", text_problem(name, max_length=100))
    findings.add_problem("organization_name", text_problem(organization_name, max_length=100))
    slug = organization_id or slug_from_name(organization_name)
    if slug is None:
        findings.add("organization_id", "required", "No ID can be derived from this name. Enter one.")
    else:
        problem = slug_problem(slug)
        if problem is not None:
            findings.add("organization_id", "invalid_id", problem)
    rules = settings.default_settings()["authentication"]["password"]
    for error in find_password_errors(
        password, rules, personal=(email, name, organization_name), field="password"
    ):
        findings.add(error.field, error.code, error.message)
    findings.raise_if_any()
    if slug is None:
        raise RuntimeError("unreachable: the errors were raised")
    return slug


def _not_found() -> NotFound:
    return NotFound("There is nothing here.")
