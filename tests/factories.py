"""One good thing of each kind, made by the real operations: a test changes one field and asserts one refusal.

``make`` belongs to the application under test. Everything is made on demand; nothing is there that was not asked
for, root included.
"""

from __future__ import annotations

import functools
import itertools
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from flask import Flask, has_app_context
from flask.testing import FlaskClient

from app.operations.clients.clients import RegisteredClient, register_client
from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_organization_by_slug,
    get_root_organization,
)
from app.operations.directory.users import create_user
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import insert_organization
from app.operations.organizations.setup import SetupResult, complete_setup, is_set_up
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import SignedIn, sign_in
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.identifiers import public_id
from app.rules.organizations import settings
from app.rules.sign_in import passwords

PASSWORD = "seven tall herons by the weir"
EVERYTHING = frozenset(PERMISSIONS) | frozenset(ROOT_ONLY)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class MadeUser:
    """A user whose password is known here."""

    organization: OrganizationSnapshot
    id: UUID
    email: str
    password: str = PASSWORD

    @property
    def public_id(self) -> str:
        """``usr_…``."""
        return public_id("usr", self.id)


@dataclass(frozen=True, slots=True)
class MadeClient:
    """A client with its first secret in clear (None for a public client)."""

    organization: OrganizationSnapshot
    registered: RegisteredClient

    @property
    def client_id(self) -> str:
        """The public ``client_id``."""
        return self.registered.client.client_id

    @property
    def secret(self) -> str:
        """The first secret in clear."""
        assert self.registered.secret is not None
        return self.registered.secret

    @property
    def basic(self) -> dict[str, str]:
        """The header of client_secret_basic."""
        return basic_header(self.client_id, self.secret)


class Factory:
    """Makes things in one application's database."""

    def __init__(self, app: Flask) -> None:
        self.app = app

    def root(self) -> OrganizationSnapshot:
        """The organization of the instance itself, set up at first use."""
        with self._context():
            if not is_set_up():
                self.setup()
            return get_root_organization()

    def setup(self, **changes: Any) -> SetupResult:
        """The first run: root, its administrator, a first organization and the first management client."""
        good = {
            "email": "root@gatehouse.example",
            "name": "Root Administrator",
            "password": PASSWORD,
            "organization_name": "First Organization",
        }
        with self._context():
            return complete_setup(None, **(good | changes))

    def organization(
        self, slug: str | None = None, *, name: str = "Acme", settings: dict[str, Any] | None = None
    ) -> OrganizationSnapshot:
        """An active organization with the settings given over the defaults; a fresh slug unless one is named."""
        chosen = slug or f"acme-{next(_numbers)}"
        with self._context():
            system = Actor.system("00000000", "tests")
            insert_organization(system, slug=chosen, name=name, overrides=settings)
            return get_organization_by_slug(chosen)

    def user(
        self,
        organization: OrganizationSnapshot,
        *,
        email: str | None = None,
        name: str = "Ada Lovelace",
        role: str | None = None,
    ) -> MadeUser:
        """A user with a verified address and ``PASSWORD``; with ``role``, one who holds it."""
        address = email or f"ada{next(_numbers)}@example.com"
        with self._context():
            hashed = _password_hash(PASSWORD)
            user_id = create_user(
                organization.id, email=address, name=name, password_hash=hashed, email_verified=True
            )
            made = MadeUser(organization, user_id, address)
            if role is not None:
                system = self.system(organization)
                add_administrator(system, organization.slug, user_id=made.public_id, role=role)
            return made

    def client(
        self, organization: OrganizationSnapshot, *, by: Actor | None = None, **fields: Any
    ) -> MadeClient:
        """A confidential web client for the code flow, unless ``fields`` say otherwise."""
        good: dict[str, Any] = {
            "name": "Orchard",
            "redirect_uris": ["https://orchard.example/callback"],
            "scopes": ["openid", "profile", "email", "offline_access"],
            "type": "web",
        }
        with self._context():
            return MadeClient(organization, register_client(by or self.system(organization), good | fields))

    def machine(self, organization: OrganizationSnapshot, *scopes: str, **fields: Any) -> MadeClient:
        """A client for client_credentials that holds the scopes (all management scopes when none are named)."""
        held = sorted(scopes or (EVERYTHING if organization.is_root else PERMISSIONS))
        good = {"name": "Harvester", "type": "machine", "scopes": held, "redirect_uris": []}
        return self.client(organization, **(good | {"grant_types": ["client_credentials"]} | fields))

    def bearer(self, organization: OrganizationSnapshot, *scopes: str) -> str:
        """An access token for the management API, of a machine client that holds the scopes."""
        client = self.machine(organization, *scopes)
        answer = self.app.test_client().post(
            "/oauth/token",
            data={"grant_type": "client_credentials", "scope": " ".join(scopes)}
            if scopes
            else {"grant_type": "client_credentials"},
            headers=client.basic,
        )
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["access_token"])

    def actor(
        self,
        organization: OrganizationSnapshot,
        *permissions: str,
        user: MadeUser | None = None,
        authenticated_ago_seconds: int = 5,
    ) -> Actor:
        """A signed-in user who holds the permissions (those of an administrator when none are named)."""
        held = frozenset(permissions) or (EVERYTHING if organization.is_root else frozenset(PERMISSIONS))
        with self._context():
            now = clock.now()
        return Actor(
            "user",
            organization.id,
            organization.id,
            permissions=held,
            is_root=organization.is_root,
            user_id=user.id if user is not None else None,
            label=user.email if user is not None else "tests",
            ip_address="192.0.2.7",
            request_id="req_00000000000000000000000000",
            authenticated_at=now - timedelta(seconds=authenticated_ago_seconds),
        )

    def system(self, organization: OrganizationSnapshot) -> Actor:
        """The service itself, acting in the organization."""
        return Actor.system(organization.id, "tests")

    def sign_in(self, user: MadeUser, http: FlaskClient | None = None) -> SignedIn:
        """A session of the user; with ``http``, that client's browser holds its cookie."""
        with self._context():
            signed_in = sign_in(user.organization.id, user.email, user.password, user_agent="tests")
            assert isinstance(signed_in, SignedIn), signed_in
            if http is not None:
                http.set_cookie(self.cookie_name(user.organization), signed_in.token, domain="localhost")
            return signed_in

    def cookie_name(self, organization: OrganizationSnapshot) -> str:
        """The name of the sign-in cookie of an organization."""
        from app.web.browser_session import cookie_name

        with self._context():
            return cookie_name(organization.id)

    @contextmanager
    def _context(self) -> Iterator[None]:
        if has_app_context():
            yield
            return
        with self.app.app_context():
            yield


@functools.cache
def _password_hash(password: str) -> str:
    # Hashing is slow by design; every user of the tests has the same password.
    return hash_new_password(settings.default_settings(), password)


def forget_hashes() -> None:
    """What was hashed so far is hashed anew, with today's parameters."""
    _password_hash.cache_clear()
    passwords.dummy_hash.cache_clear()


def basic_header(client_id: str, secret: str) -> dict[str, str]:
    """The header of client_secret_basic (RFC 6749 section 2.3.1); ours need no form-encoding."""
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()}


def bearer_header(token: str) -> dict[str, str]:
    """The header that carries an access token (RFC 6750)."""
    return {"Authorization": f"Bearer {token}"}
