"""Concurrent clients that use every machine and record what they sent and were told."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from app.fast_path.cache_invalidation import TRUSTED_SECONDS
from app.rules.identifiers import parse_token, public_id
from tests.bench.scenarios import CHALLENGE, REDIRECT_URI, VERIFIER
from tests.factories import Factory, basic_header, bearer_header
from tests.faults.history import Operation, Outcome
from tests.support.concurrent_requests import Post, Reply, send

TIMEOUT_SECONDS = 10.0
GRACE_SECONDS = 30
_PAUSE_SECONDS = (0.01, 0.05)
_UNAVAILABLE_PAUSE_SECONDS = 0.1
_ACCEPTED = {200, 201, 303}
_SAYS_NOTHING = {0, 408}
_RECENT = 300
_TOKEN_THREADS, _FAMILY_THREADS, _ADMINISTRATOR_THREADS = 6, 4, 3
_MAX_REDIRECTS = 6
_SWEEP_ATTEMPTS = 10
_MAX_SILENCES = 20
_BEARER = "token of the administrators"


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


class Workload:
    """Clients in threads, which send requests to the machines at ``urls``.

    ``history`` is complete once the ``with`` block has ended.
    """

    def __init__(self, urls: Sequence[str], make: Factory, seed: int) -> None:
        self.urls = urls
        self.known, self._seed = Known(), seed
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.organization = make.organization()
        administrator = make.machine(self.organization)
        self._machine = _app(make.machine(self.organization, "clients:read"))
        web = make.client(
            self.organization,
            redirect_uris=[REDIRECT_URI],
            scopes=["openid", "offline_access"],
            trust="first_party",
        )
        self._web = _app(web)
        name = make.cookie_name(self.organization)
        self._cookies = [
            f"{name}={make.sign_in(make.user(self.organization)).token}" for _ in range(_FAMILY_THREADS)
        ]
        reply = send(
            self.urls[0], Post("/oauth/token", {"grant_type": "client_credentials"}, administrator.basic)
        )
        self._bearer = bearer_header(reply.json["access_token"])

    @property
    def history(self) -> list[Operation]:
        """What happened."""
        return self.known.history

    def __enter__(self) -> Workload:
        numbers = iter(range(1_000_000))
        for run, count in (
            (self._use_tokens, _TOKEN_THREADS),
            (self._use_families, _FAMILY_THREADS),
            (self._administer, _ADMINISTRATOR_THREADS),
        ):
            for number in range(count):
                chance = random.Random(self._seed * 1000 + next(numbers))
                self._threads.append(threading.Thread(target=run, args=(chance, number)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def sweep(self) -> int:
        """Ask the machines in turn for everything that was ever issued, and each for the latest and for every client.

        Return the number of requests that none of several attempts got a response for. A machine that left many without
        one is not asked again: its other requests count as unanswered.
        """
        asks: list[partial[Reply | None]] = []
        for machine in range(len(self.urls)):
            tokens = self.known.tokens[:-_RECENT][machine :: len(self.urls)] + self.known.tokens[-_RECENT:]
            asks += [partial(self._introspect, machine, token) for token in tokens]
            asks += [partial(self._show_client, machine, app) for app in self.known.apps]
            asks += [
                partial(self._issue, machine, app, secret)
                for app in self.known.apps
                for secret in app.secrets
            ]

        silences: Counter[int] = Counter()

        def is_answered(ask: partial[Reply | None]) -> bool:
            machine = ask.args[0]
            if silences[machine] >= _MAX_SILENCES:
                return False
            is_known = any(ask() is not None for _ in range(_SWEEP_ATTEMPTS))
            silences[machine] += not is_known
            return is_known

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(is_answered, asks)).count(False)

    # Requests. Each returns the response, or None without one.

    def _issue(
        self, machine: int, app: App, secret: Secret | None = None, *, is_usable: bool = True
    ) -> Reply | None:
        """Request a token. One that is not ``is_usable`` may be inactive from the beginning: its secret is revoked."""
        form = {"grant_type": "client_credentials"}
        reply = self._ask(
            "issue", machine, Post("/oauth/token", form, app.basic(secret)), uses=app.things(secret)
        )
        if is_usable and reply is not None and reply.status == 200:
            self.known.tokens.append(IssuedToken(reply.json["access_token"], app))
        return reply

    def _introspect(self, machine: int, token: IssuedToken) -> Reply | None:
        request = Post("/oauth/introspect", {"token": token.value}, token.app.basic())
        uses = token.things | token.app.things()
        return self._ask(
            "introspect", machine, request, uses=uses, is_yes=lambda reply: bool(reply.json["active"])
        )

    def _revoke(self, chance: random.Random, token: str, app: App, ends: Iterable[str]) -> None:
        """Revoke the token; after no response try again, perhaps at another machine."""
        request = Post("/oauth/revoke", {"token": token}, app.basic())
        while not self._stopping.is_set():
            machine = self._any_machine(chance)
            if self._ask("revoke token", machine, request, uses=app.things(), ends=ends) is not None:
                return

    def _show_client(self, machine: int, app: App) -> Reply | None:
        request = Post(f"/clients/{app.client_id}", None, self._bearer, method="GET")
        return self._ask("read client", machine, request, uses={_BEARER, f"registration of {app.client_id}"})

    # Clients that get tokens for themselves.

    def _use_tokens(self, chance: random.Random, _number: int) -> None:
        while not self._stopping.is_set():
            machine, tokens = self._any_machine(chance), self.known.tokens
            action = chance.random()
            if action < 0.3 or not tokens:
                self._issue(machine, self._machine)
            elif action < 0.9:
                self._introspect(machine, chance.choice(tokens[-_RECENT:] if action < 0.7 else tokens))
            else:
                token = chance.choice(tokens[-_RECENT:])
                if not token.grant:
                    self._revoke(chance, token.value, token.app, {token.value})
            self._pause(chance)

    # Clients that refresh tokens of users.

    def _use_families(self, chance: random.Random, number: int) -> None:
        while not self._stopping.is_set():
            tokens = self._authorize(chance, self._cookies[number])
            if tokens is not None:
                _Family(self, chance, self._web, tokens).run()
            self._pause(chance)

    def _authorize(self, chance: random.Random, cookie: str) -> dict[str, Any] | None:
        """Run a code flow; return the token response, or None if it failed on the way."""
        query = {
            "response_type": "code",
            "client_id": self._web.client_id,
            "redirect_uri": REDIRECT_URI,
            "scope": "openid offline_access",
            "state": "xyz",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        location = f"/oauth/authorize?{urlencode(query)}"
        machine, code = self._any_machine(chance), ""
        for _ in range(_MAX_REDIRECTS):
            url = urlsplit(location)
            request = Post(f"{url.path}?{url.query}", None, {"Cookie": cookie}, method="GET")
            reply = self._ask("authorize", machine, request, uses={cookie}, is_yes=_is_signed_in)
            if reply is None or not _is_signed_in(reply):
                return None
            location = reply.headers["location"]
            code = parse_qs(urlsplit(location).query).get("code", [""])[0]
            if code:
                break
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
        request = Post("/oauth/token", form | {"redirect_uri": REDIRECT_URI}, self._web.basic())
        uses = self._web.things() | {code}
        # A client does not send a code again: its tokens would be revoked.
        reply = self._ask("redeem code", self._any_machine(chance), request, uses=uses, audits=_granted)
        return reply.json if reply is not None and reply.status == 200 else None

    # Administrators, who register clients, change their secrets and disable them.

    def _administer(self, chance: random.Random, _number: int) -> None:
        while not self._stopping.is_set():
            app = self._register(chance)
            if app is not None:
                self._work_with(chance, app)
                self._pause(chance)
                self._change_secrets(chance, app)
                if chance.random() < 0.5:
                    self._disable(chance, app)
            self._pause(chance)

    def _register(self, chance: random.Random) -> App | None:
        fields = {"name": "Orchard", "type": "machine", "scopes": ["clients:read"], "redirect_uris": []}
        request = Post("/clients", None, self._bearer, fields | {"grant_types": ["client_credentials"]})
        reply = self._administrate(
            "register client", chance, request, lambda data: ("client.registered", data["client_id"])
        )
        if reply is None or reply.status != 201:
            return None
        data = reply.json["data"]
        app = App(data["client_id"], (Secret(data["credential_id"], data["client_secret"]),))
        self.known.apps.append(app)
        return app

    def _work_with(self, chance: random.Random, app: App) -> None:
        for _ in range(4):
            self._issue(self._any_machine(chance), app, chance.choice(app.secrets))

    def _change_secrets(self, chance: random.Random, app: App) -> None:
        """Add a secret and revoke it, while the client uses it at every machine."""
        path = f"/clients/{app.client_id}/credentials"
        reply = self._administrate(
            "add secret",
            chance,
            Post(path, None, self._bearer, {}),
            lambda data: ("credential.created", data["id"]),
        )
        if reply is None or reply.status != 201:
            return
        added = Secret(reply.json["data"]["id"], reply.json["data"]["client_secret"])
        both = App(app.client_id, (*app.secrets, added))
        self.known.apps.append(both)
        self._work_with(chance, both)
        reply = None
        while reply is None and not self._stopping.is_set():
            reply = self._administrate(
                "revoke secret",
                chance,
                Post(f"{path}/{added.id}", None, self._bearer, method="DELETE"),
                lambda data: ("credential.revoked", data["credential_id"]),
                ends={added.id},
            )
        for machine in [*range(len(self.urls))] * 3:
            self._issue(machine, app, added, is_usable=False)
            self._pause(chance)
        self._issue(self._any_machine(chance), app)

    def _disable(self, chance: random.Random, app: App) -> None:
        request = Post(f"/clients/{app.client_id}", None, self._bearer, {"status": "disabled"}, "PUT")
        reply = None
        while reply is None and not self._stopping.is_set():
            reply = self._administrate(
                "disable client",
                chance,
                request,
                lambda data: ("client.updated", data["client_id"]),
                ends={app.client_id},
            )
        for machine in range(len(self.urls)):
            self._issue(machine, app)
        time.sleep(TRUSTED_SECONDS * chance.random() * 1.5)
        for machine in range(len(self.urls)):
            self._issue(machine, app)

    def _administrate(
        self,
        name: str,
        chance: random.Random,
        request: Post,
        audits: Callable[[Any], tuple[str, str]],
        ends: Iterable[str] = (),
    ) -> Reply | None:
        return self._ask(
            name,
            self._any_machine(chance),
            request,
            uses={_BEARER},
            ends=ends,
            seconds_elsewhere=TRUSTED_SECONDS,
            audits=lambda reply: audits(reply.json["data"]),
        )

    # What all have in common.

    def _any_machine(self, chance: random.Random) -> int:
        return chance.randrange(len(self.urls))

    def _pause(self, chance: random.Random) -> None:
        self._stopping.wait(chance.uniform(*_PAUSE_SECONDS))

    def _ask(
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
        exchange = self._exchange(machine, request)
        reply = exchange.reply
        is_ok = reply is not None and exchange.is_accepted and (is_yes is None or is_yes(reply))
        self._record(
            name,
            exchange,
            outcome=Outcome.OK if is_ok else Outcome.REFUSED if reply is not None else Outcome.UNKNOWN,
            creates=creates(reply) if creates and is_ok and reply else (),
            may_end=may_end(exchange) if may_end else (),
            audited=audits(reply) if audits and is_ok and reply else None,
            **known,
        )
        return reply

    def _exchange(self, machine: int, request: Post) -> Exchange:
        began, reply, is_open = time.monotonic(), None, False
        try:
            reply = send(self.urls[machine], request, timeout=TIMEOUT_SECONDS)
        except TimeoutError:
            is_open = True
        except (http.client.HTTPException, OSError):
            self._stopping.wait(_UNAVAILABLE_PAUSE_SECONDS)
        status, ended = 0 if reply is None else reply.status, time.monotonic()
        if status in _SAYS_NOTHING or status >= 500:
            self._stopping.wait(_UNAVAILABLE_PAUSE_SECONDS)
            reply = None
        return Exchange(machine, began, ended, status, reply, is_open)

    def _record(
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


class _Family:
    """An honest client with the tokens of one grant: it sends a refresh token again only after no response."""

    def __init__(self, workload: Workload, chance: random.Random, app: App, tokens: dict[str, Any]) -> None:
        self.workload, self.chance, self.app, self.tokens = workload, chance, app, tokens
        self.grant = _grant_of(tokens["refresh_token"])
        self.previous = ""
        self._is_over = False
        self._know(tokens)

    def run(self) -> None:
        """Use the tokens until the grant ends or the run does."""
        while not self._is_over and not self.workload._stopping.is_set():
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
            self.workload._pause(self.chance)
        for machine in range(len(self.workload.urls)):
            self.workload._introspect(machine, self._access_token())

    def _refresh(self) -> None:
        refresh_token, first = self.tokens["refresh_token"], time.monotonic()
        while not self.workload._stopping.is_set():
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

        return self.workload._ask(
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
        exchange = self.workload._exchange(self._machine(), Post("/oauth/token", form, self.app.basic()))
        is_detected = exchange.reply is not None and not exchange.is_accepted
        self.workload._record(
            "replay",
            exchange,
            outcome=Outcome.UNKNOWN if exchange.reply is None else Outcome.OK,
            uses={f"spent {spent}"} if exchange.is_accepted else set(),
            ends={self.grant} if is_detected else set(),
            may_end={self.grant},
        )
        self._is_over = True

    def _revoke_by_refresh_token(self) -> None:
        self.workload._revoke(self.chance, self.tokens["refresh_token"], self.app, {self.grant})
        self._is_over = True

    def _revoke_by_administrator(self) -> None:
        request = Post(f"/grants/{self.grant}", None, self.workload._bearer, method="DELETE")
        self.workload._ask(
            "revoke grant",
            self._machine(),
            request,
            uses={_BEARER, self.grant},
            ends={self.grant},
            audits=lambda _reply: ("grant.revoked", self.grant),
        )
        self._is_over = True

    def _introspect(self) -> None:
        self.workload._introspect(self._machine(), self._access_token())

    def _access_token(self) -> IssuedToken:
        return IssuedToken(self.tokens["access_token"], self.app, self.grant)

    def _know(self, tokens: dict[str, Any]) -> None:
        self.workload.known.tokens.append(IssuedToken(tokens["access_token"], self.app, self.grant))

    def _machine(self) -> int:
        return self.workload._any_machine(self.chance)


def _app(client: Any) -> App:
    return App(client.client_id, (Secret(f"secret of {client.client_id}", client.secret),))


def _grant_of(refresh_token: str) -> str:
    parsed = parse_token(refresh_token)
    assert parsed is not None and parsed.grant_id is not None
    return public_id("grt", parsed.grant_id)


def _is_signed_in(reply: Reply) -> bool:
    return reply.status == 303 and "/login" not in reply.headers["location"]


def _granted(reply: Reply) -> tuple[str, str]:
    return "grant.created", _grant_of(reply.json["refresh_token"])
