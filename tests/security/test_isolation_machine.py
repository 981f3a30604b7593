"""Random actions in three organizations with five roles never reach another organization.

``tests/support/organization_model.py`` describes what each role may do, independently of the code; the contents of
each organization are recorded here. The long form takes about ten minutes of a core for each engine:
``GATEHOUSE_STATEFUL_STEPS=100000 script/test tests/security/test_isolation_machine.py``.
"""

from __future__ import annotations

import os
import time
from copy import deepcopy
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from werkzeug.test import TestResponse

from app.operations.organizations import organizations
from tests.factories import Factory, bearer_header
from tests.support.applications import forget
from tests.support.databases import Database
from tests.support.organization_model import (
    MAY,
    PATHS,
    ROLES,
    ROWS,
    InitialState,
    ModelOrganization,
    ModelUser,
    Thing,
    body_of,
    numbers,
)

STEPS = int(os.environ.get("GATEHOUSE_STATEFUL_STEPS", "600"))
STEPS_EACH = min(200, STEPS)
IS_LONG = STEPS > 600
places = st.integers(min_value=0, max_value=2)
further = st.integers(min_value=1, max_value=2)
# Half of the calls use an object's own organization and many have the permission, so that both outcomes are frequent.
away = st.sampled_from((0, 0, 1, 2))
member_roles = st.sampled_from(("admin", "admin", "developer", *ROLES))
kinds = st.sampled_from(sorted(PATHS))


class Organizations(RuleBasedStateMachine):
    """The model beside the service. The test sets ``app``, ``make``, ``database`` and ``beginning``."""

    app: Flask
    make: Factory
    database: Database
    beginning: InitialState
    steps = 0
    things = Bundle("things")

    @initialize()
    def begin(self) -> None:
        if time.monotonic() > self.beginning.ends_at:
            type(self).beginning = InitialState.made(self.app, self.make, self.database)
        self.database.clean(to=self.beginning.rows)
        forget(self.app)
        self.http = self.app.test_client()
        self.root = self.beginning.root
        self.places = deepcopy(self.beginning.places)

    @rule(target=things, place=places, who=member_roles, kind=kinds)
    def make_one(self, place: int, who: str, kind: str) -> Any:
        home, member = self.places[place], self.places[place].members[who]
        body = body_of(kind)
        answer = self._send("POST", PATHS[kind], member, body)
        allowed = self._reach(member, kind, "write") != ""
        if not self._expect(answer, home, 201 if allowed else 403):
            return multiple()
        data = answer.get_json()["data"]
        thing = Thing(place, kind, data.get("client_id", data.get("id")), who)
        home.standing[thing.id], home.names[thing.id] = thing, body["name"]
        return thing

    @rule(thing=things, on=away, who=member_roles)
    def read_one(self, thing: Thing, on: int, who: str) -> None:
        place = (thing.home + on) % 3
        home, member = self.places[place], self.places[place].members[who]
        answer = self._send("GET", f"{PATHS[thing.kind]}/{thing.id}", member)
        if self._expect(answer, home, self._verdict(thing, place, who, "read")):
            assert answer.get_json()["data"]["name"] == home.names[thing.id]

    @rule(thing=things, on=away, who=member_roles)
    def change_one(self, thing: Thing, on: int, who: str) -> None:
        place = (thing.home + on) % 3
        home, member = self.places[place], self.places[place].members[who]
        name = f"Thing {next(numbers)}"
        answer = self._send("PUT", f"{PATHS[thing.kind]}/{thing.id}", member, {"name": name})
        if self._expect(answer, home, self._verdict(thing, place, who, "write")):
            home.names[thing.id] = name

    @rule(thing=things, on=away, who=member_roles)
    def delete_one(self, thing: Thing, on: int, who: str) -> None:
        place = (thing.home + on) % 3
        home, member = self.places[place], self.places[place].members[who]
        answer = self._send("DELETE", f"{PATHS[thing.kind]}/{thing.id}", member)
        if self._expect(answer, home, self._verdict(thing, place, who, "write")):
            del home.standing[thing.id], home.names[thing.id]

    @rule(place=places, who=member_roles, kind=kinds)
    def list_all(self, place: int, who: str, kind: str) -> None:
        home, member = self.places[place], self.places[place].members[who]
        reach = self._reach(member, kind, "read")
        answer = self._send("GET", PATHS[kind], member, limit=100)
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

    @rule(place=places, on=further, kind=kinds)
    def carry_a_cursor(self, place: int, on: int, kind: str) -> None:
        here, there = self.places[place], self.places[(place + on) % 3]
        if here.is_suspended or there.is_suspended:
            return
        answer = self._send("GET", PATHS[kind], here.members["admin"], limit=1)
        cursor = answer.get_json()["meta"]["next_cursor"]
        if cursor is not None:
            answer = self._send("GET", PATHS[kind], there.members["admin"], cursor=cursor)
            assert answer.status_code == 400, answer.text

    @rule(place=places, on=further, who=member_roles, kind=kinds)
    def name_another(self, place: int, on: int, who: str, kind: str) -> None:
        home, other = self.places[place], self.places[(place + on) % 3]
        answer = self._send("GET", PATHS[kind], home.members[who], organization_id=other.slug)
        self._expect(answer, home, 404)

    @rule(place=places, who=st.sampled_from(ROLES[1:]), role=st.sampled_from(ROLES[1:4]), gives=st.booleans())
    def change_roles(self, place: int, who: str, role: str, gives: bool) -> None:
        home, admin, member = (
            self.places[place],
            self.places[place].members["admin"],
            self.places[place].members[who],
        )
        path = f"/organizations/{home.slug}/admins"
        if gives:
            answer = self._send("POST", path, admin, {"user_id": member.user.public_id, "role": role})
            if self._expect(answer, home, 409 if role in member.roles else 201):
                member.roles.add(role)
            return
        if home.is_suspended:
            return
        listed = self._send("GET", path, admin, limit=100).get_json()["data"]
        found = [
            one["id"] for one in listed if one["user_id"] == member.user.public_id and one["role"] == role
        ]
        assert bool(found) == (role in member.roles)
        if found:
            answer = self._send("DELETE", f"{path}/{found[0]}", admin)
            assert answer.status_code == 200, answer.text
            member.roles.discard(role)

    # One at a time and not for long: while an organization is suspended, every response is the same.
    @precondition(lambda self: not any(place.is_suspended for place in self.places))
    @rule(place=places)
    def suspend_one(self, place: int) -> None:
        self._set_status(self.places[place], "suspended")

    @precondition(lambda self: any(place.is_suspended for place in self.places))
    @rule()
    def resume_it(self) -> None:
        self._set_status(next(place for place in self.places if place.is_suspended), "active")

    @invariant()
    def rows_are_where_the_model_says(self) -> None:
        """Compare the names of all objects with the model, to find changes in another organization."""
        if not hasattr(self, "places"):
            return
        type(self).steps += 1
        lying = {
            (bytes(key).decode(), name)
            for key, name, status in self.database.query(ROWS)
            if name.startswith("Thing") and bytes(status) != b"deleted"
        }
        assert lying == {(place.id, name) for place in self.places for name in place.names.values()}

    def _set_status(self, home: ModelOrganization, status: str) -> None:
        with self.app.app_context():
            organizations.update_organization(self.make.actor(self.root), home.slug, {"status": status})
        home.is_suspended = status == "suspended"

    def _send(
        self, method: str, path: str, member: ModelUser, body: Any = None, **query: Any
    ) -> TestResponse:
        return self.http.open(
            path, method=method, json=body, query_string=query, headers=bearer_header(member.bearer)
        )

    def _expect(self, answer: TestResponse, home: ModelOrganization, status: int) -> bool:
        """Return whether the call succeeded. Fail on any status but the model's, which is 401 while suspended."""
        wanted = 401 if home.is_suspended else status
        assert answer.status_code == wanted, (answer.request.method, answer.request.path, wanted, answer.text)
        return answer.status_code < 300

    def _reach(self, member: ModelUser, kind: str, verb: str) -> str:
        found = {MAY[kind][verb].get(role, "") for role in member.roles}
        return "all" if "all" in found else "own" if "own" in found else ""

    def _verdict(self, thing: Thing, place: int, who: str, verb: str) -> int:
        member = self.places[place].members[who]
        reach = self._reach(member, thing.kind, verb)
        if reach == "":
            return 403
        stands = place == thing.home and thing.id in self.places[place].standing
        is_own = stands and thing.maker == who
        seen = self._reach(member, thing.kind, "read") == "all" or is_own
        if not stands or not seen:
            return 404
        return 200 if reach == "all" or (reach == "own" and is_own) else 403


@pytest.mark.timeout(max(600, STEPS // 10))
def test_random_actions_never_cross_organizations(app: Flask, make: Factory, database: Database) -> None:
    """TN-1, TN-2, TN-3, TN-11, TN-13."""
    Organizations.app, Organizations.make, Organizations.database = app, make, database
    Organizations.beginning, Organizations.steps = InitialState.made(app, make, database), 0
    once = settings(
        max_examples=max(1, STEPS // STEPS_EACH),
        stateful_step_count=STEPS_EACH,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=not IS_LONG,
        # Failures are reported immediately: shrinking them takes minutes.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(Organizations, settings=once)
    # Some runs end early, so further ones follow; the same seed would only repeat the same run.
    while IS_LONG and Organizations.steps < STEPS:
        again = max(1, (STEPS - Organizations.steps) // STEPS_EACH)
        run_state_machine_as_test(Organizations, settings=settings(once, max_examples=again))
