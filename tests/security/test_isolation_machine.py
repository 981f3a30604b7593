"""Three organizations, five roles, and whatever people do in them in any order: nobody ever reaches another's things.

What each role may is written down here, apart from the code, and so is what stands in each organization. The long form
is ``GATEHOUSE_STATEFUL_STEPS=100000 script/test tests/security/test_isolation_machine.py``.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from werkzeug.test import TestResponse

from app.operations.tenancy import organizations
from tests.factories import Factory, MadeUser, bearer_header
from tests.support.databases import Database
from tests.support.user_tokens import user_token

STEPS = int(os.environ.get("GATEHOUSE_STATEFUL_STEPS", "600"))
STEPS_EACH = min(200, STEPS)
KEEPER = {
    "name": "Keeper",
    "permissions": ["organization:read", "resources:read", "resources:write", "users:read"],
}
SETTINGS = {"user_permissions": {"roles": {"keeper": KEEPER}}}
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
_numbers = itertools.count()


def body_of(kind: str) -> dict[str, Any]:
    number = next(_numbers)
    if kind == "user":
        return {"email": f"somebody{number}@example.com", "name": "Somebody"}
    if kind == "resource":
        return {"identifier": f"urn:thing:{number}", "name": "Thing"}
    return {"name": "Thing", "redirect_uris": ["https://thing.example/cb"]}


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
    people: dict[str, Person]
    standing: dict[str, Thing] = field(default_factory=dict)
    is_suspended: bool = False


places = st.integers(min_value=0, max_value=2)
people = st.sampled_from(ROLES)
kinds = st.sampled_from(sorted(PATHS))


class Organizations(RuleBasedStateMachine):
    """The model beside the service. ``app``, ``make`` and ``database`` are set by the test."""

    app: Flask
    make: Factory
    database: Database
    things = Bundle("things")

    @initialize()
    def found(self) -> None:
        self.database.clean()
        self.http = self.app.test_client()
        self.root = self.make.root()
        self.places = [self._place() for _ in range(3)]

    @rule(target=things, place=places, who=people, kind=kinds)
    def make_one(self, place: int, who: str, kind: str) -> Any:
        home, person = self.places[place], self.places[place].people[who]
        answer = self._send("POST", PATHS[kind], person, body_of(kind))
        allowed = self._reach(person, kind, "write") != ""
        if not self._expect(answer, home, 201 if allowed else 403):
            return multiple()
        data = answer.get_json()["data"]
        thing = Thing(place, kind, data.get("client_id", data.get("id")), who)
        home.standing[thing.id] = thing
        return thing

    @rule(thing=things, place=places, who=people)
    def read_one(self, thing: Thing, place: int, who: str) -> None:
        home, person = self.places[place], self.places[place].people[who]
        answer = self._send("GET", f"{PATHS[thing.kind]}/{thing.id}", person)
        self._expect(answer, home, self._verdict(thing, place, who, "read"))

    @rule(thing=things, place=places, who=people)
    def change_one(self, thing: Thing, place: int, who: str) -> None:
        home, person = self.places[place], self.places[place].people[who]
        answer = self._send(
            "PUT", f"{PATHS[thing.kind]}/{thing.id}", person, {"name": f"Thing {next(_numbers)}"}
        )
        self._expect(answer, home, self._verdict(thing, place, who, "write"))

    @rule(thing=things, place=places, who=people)
    def delete_one(self, thing: Thing, place: int, who: str) -> None:
        home, person = self.places[place], self.places[place].people[who]
        answer = self._send("DELETE", f"{PATHS[thing.kind]}/{thing.id}", person)
        if self._expect(answer, home, self._verdict(thing, place, who, "write")):
            home.standing.pop(thing.id, None)

    @rule(thing=consumes(things))
    def forget_one(self, thing: Thing) -> None:
        """The bundle stays small; the thing stands."""

    @rule(place=places, who=people, kind=kinds)
    def list_all(self, place: int, who: str, kind: str) -> None:
        home, person = self.places[place], self.places[place].people[who]
        reach = self._reach(person, kind, "read")
        answer = self._send("GET", PATHS[kind], person, limit=100)
        if not self._expect(answer, home, 200 if reach else 403):
            return
        listed = {item.get("client_id", item.get("id")) for item in answer.get_json()["data"]}
        mine = {
            thing.id
            for thing in home.standing.values()
            if thing.kind == kind and (reach == "all" or thing.maker == who)
        }
        others = {thing.id for other in self.places if other is not home for thing in other.standing.values()}
        assert not listed & others, "another organization's things are listed"
        if answer.get_json()["meta"]["next_cursor"] is None:
            assert mine <= listed, "own things are missing"

    @rule(place=places, other=places, kind=kinds)
    def carry_a_cursor(self, place: int, other: int, kind: str) -> None:
        here, there = self.places[place], self.places[other]
        if place == other or here.is_suspended or there.is_suspended:
            return
        answer = self._send("GET", PATHS[kind], here.people["admin"], limit=1)
        cursor = answer.get_json()["meta"]["next_cursor"]
        if cursor is not None:
            answer = self._send("GET", PATHS[kind], there.people["admin"], cursor=cursor)
            assert answer.status_code == 400, answer.text

    @rule(place=places, other=places, who=people, kind=kinds)
    def name_another(self, place: int, other: int, who: str, kind: str) -> None:
        if place == other:
            return
        home = self.places[place]
        answer = self._send("GET", PATHS[kind], home.people[who], organization_id=self.places[other].slug)
        self._expect(answer, home, 404)

    @rule(place=places, who=st.sampled_from(ROLES[1:]), role=st.sampled_from(ROLES[1:4]), gives=st.booleans())
    def change_roles(self, place: int, who: str, role: str, gives: bool) -> None:
        home, admin, person = (
            self.places[place],
            self.places[place].people["admin"],
            self.places[place].people[who],
        )
        path = f"/organizations/{home.slug}/admins"
        if gives:
            answer = self._send("POST", path, admin, {"user_id": person.user.public_id, "role": role})
            if self._expect(answer, home, 409 if role in person.roles else 201):
                person.roles.add(role)
            return
        if home.is_suspended:
            return
        listed = self._send("GET", path, admin, limit=100).get_json()["data"]
        found = [
            one["id"] for one in listed if one["user_id"] == person.user.public_id and one["role"] == role
        ]
        assert bool(found) == (role in person.roles)
        if found:
            answer = self._send("DELETE", f"{path}/{found[0]}", admin)
            assert answer.status_code == 200, answer.text
            person.roles.discard(role)

    @rule(place=places, suspends=st.booleans())
    def suspend_or_resume(self, place: int, suspends: bool) -> None:
        home = self.places[place]
        with self.app.app_context():
            status = "suspended" if suspends else "active"
            organizations.update_organization(self.make.actor(self.root), home.slug, {"status": status})
        home.is_suspended = suspends

    @invariant()
    def rows_are_where_the_model_says(self) -> None:
        if not hasattr(self, "places"):
            return
        rows = self.database.query("SELECT organization_id, COUNT(*) FROM resources GROUP BY organization_id")
        counted = {bytes(key).decode(): count for key, count in rows}
        for place in self.places:
            standing = sum(thing.kind == "resource" for thing in place.standing.values())
            assert counted.get(place.people["admin"].user.organization.id, 0) == standing

    def _place(self) -> Place:
        organization = self.make.organization(settings=SETTINGS)
        people = {}
        for role in ROLES:
            user = self.make.user(organization, role=None if role == "member" else role)
            held = set() if role == "member" else {role}
            people[role] = Person(user, user_token(self.app, self.make, user), held)
        return Place(organization.slug, people)

    def _send(self, method: str, path: str, person: Person, body: Any = None, **query: Any) -> TestResponse:
        return self.http.open(
            path, method=method, json=body, query_string=query, headers=bearer_header(person.bearer)
        )

    def _expect(self, answer: TestResponse, home: Place, status: int) -> bool:
        """Whether it was a success; anything but the status that the model says fails, 401 where it is suspended."""
        wanted = 401 if home.is_suspended else status
        assert answer.status_code == wanted, (answer.request.method, answer.request.path, wanted, answer.text)
        return answer.status_code < 300

    def _reach(self, person: Person, kind: str, verb: str) -> str:
        found = {MAY[kind][verb].get(role, "") for role in person.roles}
        return "all" if "all" in found else "own" if "own" in found else ""

    def _verdict(self, thing: Thing, place: int, who: str, verb: str) -> int:
        person = self.places[place].people[who]
        reach = self._reach(person, thing.kind, verb)
        if reach == "":
            return 403
        stands = place == thing.home and thing.id in self.places[place].standing
        is_own = stands and thing.maker == who
        seen = self._reach(person, thing.kind, "read") == "all" or is_own
        if not stands or not seen:
            return 404
        return 200 if reach == "all" or (reach == "own" and is_own) else 403


@pytest.mark.timeout(max(180, STEPS // 10))
def test_nobody_reaches_what_is_anothers_whatever_happens(
    app: Flask, make: Factory, database: Database
) -> None:
    """TN-1, TN-2, TN-3, TN-11, TN-13."""
    Organizations.app, Organizations.make, Organizations.database = app, make, database
    run_state_machine_as_test(
        Organizations,
        settings=settings(
            max_examples=max(1, STEPS // STEPS_EACH),
            stateful_step_count=STEPS_EACH,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=STEPS <= 600,
            # What failed is told at once; to make it small takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
