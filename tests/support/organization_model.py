"""A model of three organizations, users in five roles, and their permissions, independent of the code."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from flask import Flask

from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory, MadeUser
from tests.support.applications import forget
from tests.support.databases import Database, Rows
from tests.support.user_tokens import user_token

KEEPER = {
    "name": "Keeper",
    "permissions": ["organization:read", "resources:read", "resources:write", "users:read"],
}
SETTINGS = {"user_permissions": {"roles": {"keeper": KEEPER}}}
# Sessions are renewed after this time; operations that need a recent sign-in accept one of the last ten minutes.
FRESH_SECONDS = 300.0
ROLES = ("admin", "developer", "auditor", "keeper", "member")
# By kind of thing: who may read and who may write; "own" is what the user created.
MAY: dict[str, dict[str, dict[str, str]]] = {
    "client": {
        "read": {"admin": "all", "auditor": "all", "developer": "own"},
        "write": {"admin": "all", "developer": "own"},
    },
    "resource": {
        "read": {"admin": "all", "auditor": "all", "keeper": "all", "developer": "own"},
        "write": {"admin": "all", "keeper": "all", "developer": "own"},
    },
    "user": {"read": {"admin": "all", "auditor": "all", "keeper": "all"}, "write": {"admin": "all"}},
}
PATHS = {"client": "/clients", "resource": "/resources", "user": "/users"}
ROWS = " UNION ALL ".join(
    f"SELECT organization_id, name, status FROM {table}" for table in ("clients", "resources", "users")
)
numbers = itertools.count(1)


def body_of(kind: str) -> dict[str, Any]:
    """Return a valid body that creates a thing with a unique name."""
    number = next(numbers)
    name = f"Thing {number}"
    if kind == "user":
        return {"email": f"somebody{number}@example.com", "name": name}
    if kind == "resource":
        return {"identifier": f"urn:thing:{number}", "name": name}
    return {"name": name, "redirect_uris": ["https://thing.example/cb"]}


@dataclass(frozen=True)
class Thing:
    """A created thing: organization, kind, id and creator."""

    home: int
    kind: str
    id: str
    maker: str


@dataclass
class ModelUser:
    """A user with a token for every scope; ``roles`` are the user's roles in the model."""

    user: MadeUser
    bearer: str
    roles: set[str]


@dataclass
class ModelOrganization:
    """One organization of the model."""

    slug: str
    id: str
    members: dict[str, ModelUser]
    standing: dict[str, Thing] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    is_suspended: bool = False


@dataclass
class InitialState:
    """The starting state of each run of the state machine: created by the service, then restored from a copy."""

    root: OrganizationSnapshot
    places: list[ModelOrganization]
    rows: Rows
    ends_at: float

    @classmethod
    def made(cls, app: Flask, make: Factory, database: Database) -> InitialState:
        """Create the instance and its three organizations on a clean database."""
        database.clean()
        forget(app)
        ends_at = time.monotonic() + FRESH_SECONDS
        return cls(make.root(), [_place(app, make) for _ in range(3)], database.rows(), ends_at)


def _place(app: Flask, make: Factory) -> ModelOrganization:
    """Create an organization with a user in each role."""
    organization = make.organization(settings=SETTINGS)
    members = {}
    for role in ROLES:
        user = make.user(organization, role=None if role == "member" else role)
        held = set() if role == "member" else {role}
        members[role] = ModelUser(user, user_token(app, make, user), held)
    return ModelOrganization(organization.slug, organization.id, members)
