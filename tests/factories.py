"""Factories for tests, which create valid objects through the real operations.

A test changes one field of a valid object and asserts one error. ``make`` belongs to the application under
test. Nothing is created in advance, including the root organization.
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

from app.models import token as token_model
from app.operations.clients.clients import RegisteredClient, register_client
from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_organization_by_slug,
    get_root_organization,
)
from app.operations.directory.users import create_user
from app.operations.grants.signing_keys import ensure_key
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import insert_organization
from app.operations.organizations.setup import SetupResult, complete_setup, is_set_up
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import Browser, SignedIn
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
    """A user with a known password."""

    organization: OrganizationSnapshot
    id: UUID
    email: str
    password: str = PASSWORD

    @property
    def public_id(self) -> str:
        """Return the public id, ``usr_…``."""
        return public_id("usr", self.id)


@dataclass(frozen=True, slots=True)
class MadeClient:
    """A client with its first secret in clear, None for a public client."""

    organization: OrganizationSnapshot
    registered: RegisteredClient

    @property
    def client_id(self) -> str:
        """Return the public ``client_id``."""
        return self.registered.client.client_id

    @property
    def secret(self) -> str:
        """Return the first secret in clear."""
        assert self.registered.secret is not None
        return self.registered.secret

    @property
    def basic(self) -> dict[str, str]:
        """Return the header for client_secret_basic."""
        return basic_header(self.client_id, self.secret)


class Factory:
    """Creates objects in the database of an application."""

    def __init__(self, app: Flask) -> None:
        self.app = app

    def root(self) -> OrganizationSnapshot:
        """Return the root organization, which is set up at first use."""
        with self._context():
            if not is_set_up():
                self.setup()
            return get_root_organization()

    def setup(self, **changes: Any) -> SetupResult:
        """Run the setup: root, its administrator, a first organization and the first management client."""
        defaults = {
            "email": "root@gatehouse.example",
            "name": "Root Administrator",
            "password": PASSWORD,
            "organization_name": "First Organization",
        }
        with self._context():
            return complete_setup(None, **(defaults | changes))

    def organization(
        self, slug: str | None = None, *, name: str = "Acme", settings: dict[str, Any] | None = None
    ) -> OrganizationSnapshot:
        """Create an active organization with the settings given, and a new slug unless one is given."""
        chosen = slug or f"acme-{next(_numbers)}"
        with self._context():
            system = Actor.system("00000000", "tests")
            insert_organization(system, slug=chosen, name=name, overrides=settings)
            return get_organization_by_slug(chosen)

    def signing_key(self, organization: OrganizationSnapshot, algorithm: str = "RS256") -> None:
        """Create the key that signs for the organization.

        A server would generate it at the first signature. In this process RSA pairs are generated once.
        """
        with self._context():
            ensure_key(self.system(organization), algorithm, token_model.ACTIVE)

    def user(
        self,
        organization: OrganizationSnapshot,
        *,
        email: str | None = None,
        name: str = "Ada Lovelace",
        role: str | None = None,
    ) -> MadeUser:
        """Create a user with a verified email and ``PASSWORD``, and with ``role`` if given."""
        chosen_email = email or f"ada{next(_numbers)}@example.com"
        with self._context():
            hashed = _password_hash(PASSWORD)
            user_id = create_user(
                organization.id, email=chosen_email, name=name, password_hash=hashed, email_verified=True
            )
            made = MadeUser(organization, user_id, chosen_email)
            if role is not None:
                system = self.system(organization)
                add_administrator(system, organization.slug, user_id=made.public_id, role=role)
            return made

    def client(
        self, organization: OrganizationSnapshot, *, by: Actor | None = None, **fields: Any
    ) -> MadeClient:
        """Create a confidential web client for the code flow, with ``fields`` overriding the defaults."""
        defaults: dict[str, Any] = {
            "name": "Orchard",
            "redirect_uris": ["https://orchard.example/callback"],
            "scopes": ["openid", "profile", "email", "offline_access"],
            "type": "web",
        }
        with self._context():
            return MadeClient(
                organization, register_client(by or self.system(organization), defaults | fields)
            )

    def machine(self, organization: OrganizationSnapshot, *scopes: str, **fields: Any) -> MadeClient:
        """Create a client for client_credentials with the scopes, by default all management scopes."""
        held = sorted(scopes or (EVERYTHING if organization.is_root else PERMISSIONS))
        defaults = {"name": "Harvester", "type": "machine", "scopes": held, "redirect_uris": []}
        return self.client(organization, **(defaults | {"grant_types": ["client_credentials"]} | fields))

    def bearer(self, organization: OrganizationSnapshot, *scopes: str) -> str:
        """Return a management API access token of a new machine client with the scopes."""
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
        """Return a signed-in user as actor with the permissions, by default those of an administrator."""
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
        """Return the system actor for the organization."""
        return Actor.system(organization.id, "tests")

    def sign_in(self, user: MadeUser, http: FlaskClient | None = None) -> SignedIn:
        """Start a session of the user, and set its cookie in the browser of ``http`` if given."""
        with self._context():
            signed_in = sign_in(
                user.organization.id, user.email, user.password, browser=Browser(user_agent="tests")
            )
            assert isinstance(signed_in, SignedIn), signed_in
            if http is not None:
                http.set_cookie(self.cookie_name(user.organization), signed_in.token, domain="localhost")
            return signed_in

    def cookie_name(self, organization: OrganizationSnapshot) -> str:
        """Return the name of an organization's session cookie."""
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
    # Hashing is slow by design, and every test user has the same password.
    return hash_new_password(settings.default_settings(), password)


def forget_hashes() -> None:
    """Clear cached hashes, so that they are computed with the current parameters."""
    _password_hash.cache_clear()
    passwords.dummy_hash.cache_clear()


def basic_header(client_id: str, secret: str) -> dict[str, str]:
    """Return the header for client_secret_basic (RFC 6749 section 2.3.1).

    Test credentials need no encoding.
    """
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()}


def bearer_header(token: str) -> dict[str, str]:
    """Return the header with an access token (RFC 6750)."""
    return {"Authorization": f"Bearer {token}"}
