"""Three organizations, somebody in each of five roles, and what each of them may, written down apart from the code."""

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
# Afterwards people's sign-ins are made anew: what asks for a fresh one takes one of the last ten minutes.
FRESH_SECONDS = 300.0
ROLES = ("admin", "developer", "auditor", "keeper", "member")
# By kind of thing: who may read and who may write; "own" is what the person made.
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
    """What makes a thing; its name is like no other's."""
    number = next(numbers)
    name = f"Thing {number}"
    if kind == "user":
        return {"email": f"somebody{number}@example.com", "name": name}
    if kind == "resource":
        return {"identifier": f"urn:thing:{number}", "name": name}
    return {"name": name, "redirect_uris": ["https://thing.example/cb"]}


@dataclass(frozen=True)
class Thing:
    """Something that was made: where, what, its id, by whom."""

    home: int
    kind: str
    id: str
    maker: str


@dataclass
class Person:
    """Somebody with a token that holds every scope; ``roles`` is what the model says of them."""

    user: MadeUser
    bearer: str
    roles: set[str]


@dataclass
class Place:
    """One organization, as the model has it."""

    slug: str
    id: str
    people: dict[str, Person]
    standing: dict[str, Thing] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    is_suspended: bool = False


@dataclass
class Beginning:
    """What each run of the machine starts with: made by the service itself, and then put back while it is fresh."""

    root: OrganizationSnapshot
    places: list[Place]
    rows: Rows
    ends_at: float

    @classmethod
    def made(cls, app: Flask, make: Factory, database: Database) -> Beginning:
        """The instance and its three organizations, on a clean database."""
        database.clean()
        forget(app)
        ends_at = time.monotonic() + FRESH_SECONDS
        return cls(make.root(), [_place(app, make) for _ in range(3)], database.rows(), ends_at)


def _place(app: Flask, make: Factory) -> Place:
    """An organization with somebody in each role."""
    organization = make.organization(settings=SETTINGS)
    people = {}
    for role in ROLES:
        user = make.user(organization, role=None if role == "member" else role)
        held = set() if role == "member" else {role}
        people[role] = Person(user, user_token(app, make, user), held)
    return Place(organization.slug, organization.id, people)
