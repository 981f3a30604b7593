"""Many threads get tokens while one revokes: tokens issued before the revocation are inactive on both workers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.factories import MadeClient, bearer_header
from tests.races.conftest import Race
from tests.support.concurrent_requests import Post, Reply, send, send_concurrently
from tests.support.process import wait_until

MINTERS = 32
"""Twice as many as the workers have threads."""
FAMILIES = 12
NEAREST = 100
"""How many tokens are checked: those issued last before the revocation, and first after it."""


@dataclass(frozen=True, slots=True)
class Minted:
    """A token with the times of its request and response."""

    token: str
    requested_at: float
    answered_at: float


def mint(race: Race, machine: MadeClient) -> Minted:
    requested_at = time.monotonic()
    form = {"grant_type": "client_credentials"}
    reply = send(race.server.url, Post("/oauth/token", form, machine.basic))
    assert reply.status == 200, reply.body
    return Minted(reply.json["access_token"], requested_at, time.monotonic())


def requested_after(minted: list[Minted], moment: float) -> list[Minted]:
    return [each for each in minted if each.requested_at > moment]


def revoke(race: Race, **body: object) -> Reply:
    organization = race.client.organization
    headers = bearer_header(race.make.bearer(organization, "tokens:revoke", "users:write"))
    order = Post(f"/organizations/{organization.slug}/revocations", headers=headers, json=body)
    return send_concurrently(race.server.url, [order])[0]


def is_alive(race: Race, machine: MadeClient, token: str) -> bool:
    reply = send(race.server.url, Post("/oauth/introspect", {"token": token}, machine.basic))
    return bool(reply.json["active"])


@pytest.mark.parametrize("selected", ["client_id", "credential_id", "all"])
def test_tokens_issued_before_bulk_revocation_are_inactive(race: Race, selected: str) -> None:
    """IT-3: tokens requested after the response stay active."""
    machine = race.make.machine(race.client.organization, "clients:read")
    secret = machine.registered.credential
    assert secret is not None
    body = {"client_id": machine.client_id, "credential_id": secret.public_id, "all": True}[selected]
    minted: list[Minted] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            minted.append(mint(race, machine))

    with ThreadPoolExecutor(MINTERS) as pool:
        working = [pool.submit(work) for _ in range(MINTERS)]
        try:
            wait_until(lambda: len(minted) > NEAREST, "tokens are issued")
            sent_at = time.monotonic()
            reply = revoke(race, **{selected: body})
            answered_at = time.monotonic()
            wait_until(lambda: len(requested_after(minted, answered_at)) > NEAREST, "tokens are still issued")
        finally:
            over.set()
        for each in working:
            each.result()
    assert reply.status == 201, reply.body
    before = [each for each in minted if each.answered_at < sent_at]
    after = requested_after(minted, answered_at)
    before.sort(key=lambda each: each.answered_at)
    after.sort(key=lambda each: each.requested_at)
    assert [each for each in before[-NEAREST:] if is_alive(race, machine, each.token)] == []
    assert all(is_alive(race, machine, each.token) for each in after[:NEAREST])


def test_families_refreshed_during_bulk_revocation_are_inactive(race: Race) -> None:
    """RV-6: a refresh in progress returns no token that survives the cutoff."""
    codes = [race.code() for _ in range(FAMILIES)]
    held = [send(race.server.url, race.redemption(code)).json for code in codes]
    gate = threading.Barrier(FAMILIES + 1)
    last: list[dict[str, str]] = []
    refreshed: list[int] = []

    def keep_refreshing(tokens: dict[str, str]) -> None:
        gate.wait()
        for _ in range(200):
            refreshed.append(1)
            reply = send(race.server.url, race.refresh(tokens["refresh_token"]))
            if reply.status != 200:
                break
            tokens = reply.json
        last.append(tokens)

    with ThreadPoolExecutor(FAMILIES) as pool:
        working = [pool.submit(keep_refreshing, tokens) for tokens in held]
        gate.wait()
        # Each thread is refreshing when the revocation starts.
        while len(refreshed) < 2 * FAMILIES:
            assert not all(each.done() for each in working), "nobody refreshed"
        assert revoke(race, user_id=race.user.public_id).status == 201
        for each in working:
            each.result()
    assert len(last) == FAMILIES
    for tokens in last:
        assert send(race.server.url, race.refresh(tokens["refresh_token"])).status == 400
        assert send(race.server.url, race.introspection(tokens["access_token"])).json == {"active": False}


def test_codes_redeemed_during_bulk_revocation_issue_no_active_token(race: Race) -> None:
    """A grant is as old as its code, whichever of the two transactions commits first."""
    codes = [race.code() for _ in range(FAMILIES)]
    gate = threading.Barrier(FAMILIES + 1)
    given: list[Reply] = []

    def redeem(code: str) -> None:
        gate.wait()
        given.extend(send_concurrently(race.server.url, [race.redemption(code)]))

    with ThreadPoolExecutor(FAMILIES) as pool:
        working = [pool.submit(redeem, code) for code in codes]
        gate.wait()
        assert revoke(race, client_id=race.client.client_id).status == 201
        for each in working:
            each.result()
    for reply in given:
        assert reply.status in {200, 400}, reply.body
        if reply.status == 200:
            question = race.introspection(reply.json["access_token"])
            assert send(race.server.url, question).json == {"active": False}
