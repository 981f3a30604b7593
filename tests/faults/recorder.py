"""Requests of the clients of a run: each is sent to a machine and recorded with what the client was told."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.factories import basic_header
from tests.faults.history import Operation, Outcome
from tests.support.concurrent_requests import Post, Reply, send

TIMEOUT_SECONDS = 10.0
BEARER = "token of the administrators"
_PAUSE_SECONDS = (0.01, 0.05)
_UNAVAILABLE_PAUSE_SECONDS = 0.1
_ACCEPTED = {200, 201, 303}
_SAYS_NOTHING = {0, 408}


@dataclass(frozen=True, slots=True)
class Secret:
    """A client secret."""

    id: str
    value: str


@dataclass(frozen=True, slots=True)
class App:
    """A client with its secrets."""

    client_id: str
    secrets: tuple[Secret, ...]

    def things(self, secret: Secret | None = None) -> frozenset[str]:
        """Return what a request of the client uses, if it authenticates with this secret or its first one."""
        return frozenset({self.client_id, (secret or self.secrets[0]).id})

    def basic(self, secret: Secret | None = None) -> dict[str, str]:
        """Return the header of client_secret_basic."""
        return basic_header(self.client_id, (secret or self.secrets[0]).value)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """An access token that a client was given, with what it depends on."""

    value: str
    app: App
    grant: str = ""

    @property
    def things(self) -> frozenset[str]:
        """The token, its client and, if a user allowed it, its grant."""
        return frozenset({self.value, self.app.client_id, *([self.grant] if self.grant else [])})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response, None if it is missing or says nothing about the request.

    ``is_open`` means that the client gave up waiting, so that the request may still be executed.
    """

    machine: int
    began: float
    ended: float
    status: int
    reply: Reply | None
    is_open: bool

    @property
    def is_accepted(self) -> bool:
        """Whether the status is a success."""
        return self.status in _ACCEPTED


@dataclass(slots=True)
class Known:
    """What clients were given during the run, for others to use. Lists only grow, so they need no lock."""

    history: list[Operation] = field(default_factory=list)
    tokens: list[IssuedToken] = field(default_factory=list)
    apps: list[App] = field(default_factory=list)


class Recorder:
    """Sends requests to the machines at ``urls`` and records them in ``known``, until ``stopping``.

    ``bearer`` is the header of the administrators, which a subclass sets. ``slowness`` multiplies the pauses of
    clients. Requests return the response, or None.
    """

    bearer: dict[str, str]

    def __init__(self, urls: Sequence[str], slowness: float = 1.0) -> None:
        self.urls, self.slowness = urls, slowness
        self.known = Known()
        self.stopping = threading.Event()

    def any_machine(self, chance: random.Random) -> int:
        return chance.randrange(len(self.urls))

    def pause(self, chance: random.Random) -> None:
        self.stopping.wait(chance.uniform(*_PAUSE_SECONDS) * self.slowness)

    def ask(
        self,
        name: str,
        machine: int,
        request: Post,
        *,
        is_yes: Callable[[Reply], bool] | None = None,
        creates: Callable[[Reply], Iterable[str]] | None = None,
        audits: Callable[[Reply], tuple[str, str] | None] | None = None,
        may_end: Callable[[Exchange], Iterable[str]] | None = None,
        **known: Any,
    ) -> Reply | None:
        """Send a request and record the operation; return None if its response is missing or says nothing."""
        exchange = self.exchange(machine, request)
        reply = exchange.reply
        is_ok = reply is not None and exchange.is_accepted and (is_yes is None or is_yes(reply))
        self.record(
            name,
            exchange,
            outcome=Outcome.OK if is_ok else Outcome.REFUSED if reply is not None else Outcome.UNKNOWN,
            creates=creates(reply) if creates and is_ok and reply else (),
            may_end=may_end(exchange) if may_end else (),
            audited=audits(reply) if audits and is_ok and reply else None,
            **known,
        )
        return reply

    def exchange(self, machine: int, request: Post) -> Exchange:
        began, reply, is_open = time.monotonic(), None, False
        try:
            reply = send(self.urls[machine], request, timeout=TIMEOUT_SECONDS)
        except TimeoutError:
            is_open = True
        except (http.client.HTTPException, OSError):
            self.stopping.wait(_UNAVAILABLE_PAUSE_SECONDS)
        status, ended = 0 if reply is None else reply.status, time.monotonic()
        if status in _SAYS_NOTHING or status >= 500:
            self.stopping.wait(_UNAVAILABLE_PAUSE_SECONDS)
            reply = None
        return Exchange(machine, began, ended, status, reply, is_open)

    def record(
        self,
        name: str,
        exchange: Exchange,
        *,
        outcome: Outcome,
        uses: Iterable[str] = (),
        creates: Iterable[str] = (),
        ends: Iterable[str] = (),
        may_end: Iterable[str] = (),
        **known: Any,
    ) -> None:
        self.known.history.append(
            Operation(
                name=name,
                machine=exchange.machine,
                began=exchange.began,
                ended=exchange.ended,
                status=exchange.status,
                outcome=outcome,
                uses=frozenset(uses),
                creates=frozenset(creates),
                ends=frozenset(ends),
                may_end=frozenset(may_end),
                **known,
            )
        )

    def issue(
        self, machine: int, app: App, secret: Secret | None = None, *, is_usable: bool = True
    ) -> Reply | None:
        """Request a token. One that is not ``is_usable`` may be inactive from the beginning: its secret is revoked."""
        form = {"grant_type": "client_credentials"}
        reply = self.ask(
            "issue", machine, Post("/oauth/token", form, app.basic(secret)), uses=app.things(secret)
        )
        if is_usable and reply is not None and reply.status == 200:
            self.known.tokens.append(IssuedToken(reply.json["access_token"], app))
        return reply

    def introspect(self, machine: int, token: IssuedToken) -> Reply | None:
        request = Post("/oauth/introspect", {"token": token.value}, token.app.basic())
        uses = token.things | token.app.things()
        return self.ask(
            "introspect", machine, request, uses=uses, is_yes=lambda reply: bool(reply.json["active"])
        )

    def revoke(self, chance: random.Random, token: str, app: App, ends: Iterable[str]) -> None:
        """Revoke the token; after no response try again, perhaps at another machine."""
        request = Post("/oauth/revoke", {"token": token}, app.basic())
        while not self.stopping.is_set():
            machine = self.any_machine(chance)
            if self.ask("revoke token", machine, request, uses=app.things(), ends=ends) is not None:
                return
