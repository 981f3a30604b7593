"""An honest client with the tokens of one grant."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.rules.identifiers import parse_token, public_id
from tests.faults.history import Outcome
from tests.faults.recorder import BEARER, App, Exchange, IssuedToken, Recorder
from tests.support.concurrent_requests import Post, Reply

GRACE_SECONDS = 30


class TokenFamily:
    """An honest client with the tokens of one grant: it sends a refresh token again only after no response."""

    def __init__(self, workload: Recorder, chance: random.Random, app: App, tokens: dict[str, Any]) -> None:
        self.workload, self.chance, self.app, self.tokens = workload, chance, app, tokens
        self.grant = grant_of(tokens["refresh_token"])
        self.previous = ""
        self._is_over = False
        self._know(tokens)

    def run(self) -> None:
        """Use the tokens until the grant ends or the run does."""
        while not self._is_over and not self.workload.stopping.is_set():
            action = self.chance.random()
            if action < 0.85:
                self._refresh()
            elif action < 0.95:
                self._introspect()
            elif action < 0.97:
                self._revoke_by_refresh_token()
            elif action < 0.985:
                self._revoke_by_administrator()
            elif self.previous:
                self._replay()
            self.workload.pause(self.chance)
        for machine in range(len(self.workload.urls)):
            self.workload.introspect(machine, self._access_token())

    def _refresh(self) -> None:
        refresh_token, first = self.tokens["refresh_token"], time.monotonic()
        while not self.workload.stopping.is_set():
            twice = self.chance.random() < 0.1
            machines = {self._machine() for _ in range(2 if twice else 1)}
            with ThreadPoolExecutor(len(machines)) as pool:
                replies = list(
                    pool.map(lambda machine: self._send_refresh(machine, refresh_token, first), machines)
                )
            answered = [reply for reply in replies if reply is not None]
            accepted = [reply for reply in answered if reply.status == 200]
            if accepted:
                self.previous, self.tokens = refresh_token, accepted[0].json
                self._know(self.tokens)
                return
            if answered:
                self._is_over = True
                return

    def _send_refresh(self, machine: int, refresh_token: str, first: float) -> Reply | None:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}

        def may_end(exchange: Exchange) -> set[str]:
            # Once the successor was used or the grace period is over, a refresh token counts as stolen. That holds for
            # a request that is executed after the client gave up, too.
            is_late = exchange.is_open or exchange.ended > first + GRACE_SECONDS
            return {self.grant} if is_late and not exchange.is_accepted else set()

        return self.workload.ask(
            "refresh",
            machine,
            Post("/oauth/token", form, self.app.basic()),
            uses=self.app.things() | {refresh_token, self.grant},
            ends={f"spent {self.previous}"} if self.previous else set(),
            creates=lambda reply: {reply.json["access_token"], reply.json["refresh_token"]},
            may_end=may_end,
            consumes=refresh_token,
        )

    def _replay(self) -> None:
        """Use the previous refresh token once more, as a thief would: it must be rejected and end the grant."""
        # The successor was used as well, unless this is the first.
        spent, form = self.previous, {"grant_type": "refresh_token", "refresh_token": self.previous}
        self._refresh()
        if self._is_over or self.previous == spent:
            return
        exchange = self.workload.exchange(self._machine(), Post("/oauth/token", form, self.app.basic()))
        is_detected = exchange.reply is not None and not exchange.is_accepted
        self.workload.record(
            "replay",
            exchange,
            outcome=Outcome.UNKNOWN if exchange.reply is None else Outcome.OK,
            uses={f"spent {spent}"} if exchange.is_accepted else set(),
            ends={self.grant} if is_detected else set(),
            may_end={self.grant},
        )
        self._is_over = True

    def _revoke_by_refresh_token(self) -> None:
        self.workload.revoke(self.chance, self.tokens["refresh_token"], self.app, {self.grant})
        self._is_over = True

    def _revoke_by_administrator(self) -> None:
        request = Post(f"/grants/{self.grant}", None, self.workload.bearer, method="DELETE")
        self.workload.ask(
            "revoke grant",
            self._machine(),
            request,
            uses={BEARER, self.grant},
            ends={self.grant},
            audits=lambda _reply: ("grant.revoked", self.grant),
        )
        self._is_over = True

    def _introspect(self) -> None:
        self.workload.introspect(self._machine(), self._access_token())

    def _access_token(self) -> IssuedToken:
        return IssuedToken(self.tokens["access_token"], self.app, self.grant)

    def _know(self, tokens: dict[str, Any]) -> None:
        self.workload.known.tokens.append(IssuedToken(tokens["access_token"], self.app, self.grant))

    def _machine(self) -> int:
        return self.workload.any_machine(self.chance)


def grant_of(refresh_token: str) -> str:
    """Return the id of the grant that the token belongs to."""
    parsed = parse_token(refresh_token)
    assert parsed is not None and parsed.grant_id is not None
    return public_id("grt", parsed.grant_id)
