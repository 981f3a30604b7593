"""Ten thousand organizations with a hundred users each, compared with one organization."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from app.operations.store import keyring
from app.rules.identifiers import (
    CLIENT_SECRET,
    SESSION,
    digest,
    format_client_id,
    new_id,
    new_routing_key,
    new_token,
)
from app.web.browser_session import cookie_name
from tests.bench.fill import Credentials, Row, insert_rows, rows_of
from tests.bench.instance import Instance
from tests.bench.load import DONE, Answer, Ask, MakeVisitor, Visitor, cycle, request
from tests.factories import PASSWORD

VISITED = 300
"""How many organizations of a crowd receive requests, at most."""
_CHUNK = 50
_CSRF = re.compile(rb'name="csrf_token" value="([^"]+)"')
_TABLES = (
    "organizations",
    "scopes",
    "users",
    "role_assignments",
    "sessions",
    "clients",
    "client_credentials",
)


@dataclass(frozen=True, slots=True)
class Place:
    """An organization that receives requests: its administrator's cookie, a client, and emails of users."""

    slug: str
    cookie: str
    client: Credentials
    emails: tuple[str, ...]


@dataclass
class Crowd:
    """Organizations created in bulk as copies of one that the real operations created."""

    instance: Instance
    each: int
    places: list[Place] = field(default_factory=list)
    clients: list[Credentials] = field(default_factory=list)
    made: int = 0
    _likeness: dict[str, list[Row]] = field(default_factory=dict)

    def grow(self, count: int) -> None:
        """Create this number of organizations; at most ``VISITED`` of them, evenly spread, receive requests."""
        every = max(1, count // VISITED)
        if not self._likeness:
            self._likeness = self._first()
        with self.instance.app.app_context(), self.instance.database.connect() as connection:
            while self.made < count:
                numbers = range(self.made, min(self.made + _CHUNK, count))
                tables: dict[str, list[Row]] = {name: [] for name in _TABLES}
                for number in numbers:
                    self._add(tables, number, is_visited=number % every == 0)
                for name, rows in tables.items():
                    insert_rows(connection, name, rows)
                self.made = numbers.stop

    def root_cookie(self) -> str:
        """Return the cookie header of an administrator of root."""
        make = self.instance.make
        return _cookie_of(make, make.user(make.root(), role="admin"))

    def _first(self) -> dict[str, list[Row]]:
        make = self.instance.make
        organization = make.organization("likeness")
        make.sign_in(make.user(organization, role="admin"))
        make.machine(organization, "users:read")
        key = organization.id.encode()
        with self.instance.database.connect() as connection:
            return {
                name: rows_of(connection, name, "id" if name == "organizations" else "organization_id", key)
                for name in _TABLES
            }

    def _add(self, tables: dict[str, list[Row]], number: int, *, is_visited: bool) -> None:
        key, slug = new_routing_key(), f"crowd-{number}"
        own = {"organization_id": key.encode()}
        first = {name: rows[0] for name, rows in self._likeness.items()}
        sealed = keyring.wrap_data_key(key, os.urandom(32))
        named = {"id": key.encode(), "slug": slug.encode(), "name": f"Crowd {number}", "data_key": sealed}
        tables["organizations"].append(first["organizations"] | named)
        admin = new_id().bytes
        emails = [f"user{place}@{slug}.example" for place in range(self.each)]
        for place, email in enumerate(emails):
            row_id = new_id().bytes if place else admin
            user = {"id": row_id, "email": email, "email_canonical": email.encode()}
            tables["users"].append(first["users"] | own | user)
        role = {"id": new_id().bytes, "user_id": admin, "user_organization_id": key.encode()}
        tables["role_assignments"].append(first["role_assignments"] | own | role)
        token, secret = new_token(SESSION, key), new_token(CLIENT_SECRET, key)
        client, credential = new_id(), new_id().bytes
        tables["clients"].append(first["clients"] | own | {"id": client.bytes})
        changed = {"id": credential, "client_id": client.bytes, "digest": digest(secret)}
        tables["client_credentials"].append(first["client_credentials"] | own | changed)
        known = Credentials(format_client_id(key, client), secret)
        self.clients.append(known)
        if not is_visited:
            return
        signed_in = {"id": new_id().bytes, "user_id": admin, "digest": digest(token)}
        tables["sessions"].append(first["sessions"] | own | signed_in)
        tables["scopes"] += [scope | own | {"id": new_id().bytes} for scope in self._likeness["scopes"]]
        self.places.append(Place(slug, f"{cookie_name(key)}={token}", known, tuple(emails)))


def pages(crowd: Crowd, path: str) -> MakeVisitor:
    """Show a portal page of each organization in turn to its administrator."""
    return cycle(
        [
            Ask(request("GET", f"/portal/{one.slug}{path}", headers={"Cookie": one.cookie}), 200, b"</main>")
            for one in crowd.places
        ]
    )


def organization_lists(crowd: Crowd) -> MakeVisitor:
    """Show the list of all organizations to an administrator of root."""
    headers = {"Cookie": crowd.root_cookie()}
    return cycle([Ask(request("GET", "/portal/root/organizations", headers=headers), 200, b"</table>")])


def sign_in_pages(crowd: Crowd) -> MakeVisitor:
    """Show the sign-in page of each organization in turn."""
    return cycle(
        [Ask(request("GET", f"/organizations/{one.slug}/login"), 200, b"csrf_token") for one in crowd.places]
    )


def sign_ins(places: Sequence[Place]) -> MakeVisitor:
    """Sign in users of each organization in turn: the page, and the form with the password."""

    def visitor(number: int) -> Visitor:
        chance = random.Random(number)
        while True:
            place = chance.choice(places)
            path = f"/organizations/{place.slug}/login"
            page: Answer = yield Ask(request("GET", path), 200, b"csrf_token")
            cookie = page.header(b"set-cookie").partition(b";")[0].decode()
            found = _CSRF.search(page.body)
            form: dict[str, Any] = {"email": chance.choice(place.emails), "password": PASSWORD}
            form["csrf_token"] = found[1].decode() if found else ""
            headers = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
            yield Ask(request("POST", path, urlencode(form).encode(), headers=headers), 303)
            yield DONE

    return visitor


def _cookie_of(make: Any, user: Any) -> str:
    return f"{make.cookie_name(user.organization)}={make.sign_in(user).token}"
