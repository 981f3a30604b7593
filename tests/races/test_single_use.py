"""Many requests at once with one single-use value: one succeeds, the others are rejected, and none gets a 5xx."""

from __future__ import annotations

from collections import Counter

from tests.races.conftest import CROWD, Race
from tests.support.concurrent_requests import (
    Reply,
    replies_of_every_worker,
    send,
    send_concurrently,
)

FEWER = 24
"""For what comes after the race: how many lost it is of no matter there."""


def statuses(replies: list[Reply]) -> Counter[int]:
    return Counter(reply.status for reply in replies)


def both_workers_answered(race: Race, replies: list[Reply]) -> bool:
    return {reply.worker for reply in replies} == set(race.server.worker_pids())


def test_code_is_redeemed_once(race: Race) -> None:
    """CD-4."""
    replies = send_concurrently(race.server.url, [race.redemption(race.code())] * CROWD)
    assert statuses(replies) == {200: 1, 400: CROWD - 1}
    assert {reply.json["error"] for reply in replies if reply.status == 400} == {"invalid_grant"}
    assert both_workers_answered(race, replies)


def test_concurrent_redemption_revokes_the_issued_tokens(race: Race) -> None:
    """CD-6: a second redemption shows that the code was copied."""
    replies = send_concurrently(race.server.url, [race.redemption(race.code())] * FEWER)
    winners = [reply.json for reply in replies if reply.status == 200]
    assert len(winners) == 1, statuses(replies)
    [winner] = winners
    assert send(race.server.url, race.introspection(winner["access_token"])).json == {"active": False}
    assert send(race.server.url, race.refresh(winner["refresh_token"])).json["error"] == "invalid_grant"


def test_refresh_token_has_one_successor(race: Race) -> None:
    """RF-2, RF-3: all requests within the grace period get the same response, byte for byte."""
    first = send(race.server.url, race.redemption(race.code())).json["refresh_token"]
    replies = send_concurrently(race.server.url, [race.refresh(first)] * CROWD)
    assert statuses(replies) == {200: CROWD}
    assert len({reply.json["refresh_token"] for reply in replies}) == 1
    assert len({reply.json["access_token"] for reply in replies}) == 1
    assert both_workers_answered(race, replies)
    [(generation,)] = race.server.database.query(
        "SELECT generation FROM grants WHERE organization_id = %s", race.client.organization.id.encode()
    )
    assert generation == 1


def test_old_refresh_token_is_reuse_after_its_successor_was_used(race: Race) -> None:
    """RF-3, RF-4."""
    first = send(race.server.url, race.redemption(race.code())).json["refresh_token"]
    second = send(race.server.url, race.refresh(first)).json["refresh_token"]
    third = send(race.server.url, race.refresh(second)).json
    replies = send_concurrently(race.server.url, [race.refresh(first)] * FEWER)
    assert statuses(replies) == {400: FEWER}
    assert send(race.server.url, race.introspection(third["access_token"])).json == {"active": False}
    assert send(race.server.url, race.refresh(third["refresh_token"])).status == 400


def test_revoked_token_is_rejected_by_both_workers(race: Race) -> None:
    """RV-5: both workers have used the token and cached its client."""
    for _ in range(5):
        token = send(race.server.url, race.redemption(race.code())).json["access_token"]
        question = race.introspection(token)
        workers = race.server.worker_pids()
        alive = replies_of_every_worker(race.server.url, question, workers)
        assert {reply.json["active"] for reply in alive} == {True}
        assert send(race.server.url, race.revocation(token)).status == 200
        dead = replies_of_every_worker(race.server.url, question, workers)
        assert [reply.json for reply in dead] == [{"active": False}] * len(dead)


def test_concurrent_revocations_write_one_audit_event(race: Race) -> None:
    """RV-8."""
    token = send(race.server.url, race.redemption(race.code())).json["access_token"]
    replies = send_concurrently(race.server.url, [race.revocation(token)] * FEWER)
    assert statuses(replies) == {200: FEWER}
    assert len(race.audited("token.revoked")) == 1


def test_rotation_during_revocation_leaves_no_active_token(race: Race) -> None:
    """After the last response no token of the family is active, whichever request was first."""
    for _ in range(5):
        tokens = send(race.server.url, race.redemption(race.code())).json
        posts = [race.refresh(tokens["refresh_token"])] * 20
        posts += [race.revocation(tokens["refresh_token"])] * 5
        replies = send_concurrently(race.server.url, posts)
        assert {reply.status for reply in replies} <= {200, 400}
        handed_out = [reply.json for reply in replies[:20] if reply.status == 200]
        for answer in [tokens, *handed_out]:
            assert send(race.server.url, race.introspection(answer["access_token"])).json == {"active": False}
            assert send(race.server.url, race.refresh(answer["refresh_token"])).status == 400
