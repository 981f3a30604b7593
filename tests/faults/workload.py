"""Concurrent clients that use every machine and record what they sent and were told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from app.fast_path.cache_invalidation import TRUSTED_SECONDS
from tests.bench.scenarios import CHALLENGE, REDIRECT_URI, VERIFIER
from tests.factories import Factory, bearer_header
from tests.faults.history import Operation
from tests.faults.recorder import BEARER, App, Recorder, Secret
from tests.faults.token_family import TokenFamily, grant_of
from tests.oauth.conftest import FAST_KEYS
from tests.support.concurrent_requests import Post, Reply, send

_RECENT = 300
_TOKEN_THREADS, _FAMILY_THREADS, _ADMINISTRATOR_THREADS = 6, 4, 3
_MAX_REDIRECTS = 6
_SWEEP_ATTEMPTS = 10
_MAX_SILENCES = 20


class Workload(Recorder):
    """Clients in threads, which send requests to the machines at ``urls`` in a ``with`` block.

    ``history`` is complete once the ``with`` block has ended.
    """

    def __init__(self, urls: Sequence[str], make: Factory, seed: int, slowness: float = 1.0) -> None:
        super().__init__(urls, slowness)
        self._seed = seed
        self._threads: list[threading.Thread] = []
        self.organization = make.organization(settings=FAST_KEYS)
        self._administrator = make.machine(self.organization)
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

    @property
    def history(self) -> list[Operation]:
        """What happened."""
        return self.known.history

    def __enter__(self) -> Workload:
        form = {"grant_type": "client_credentials"}
        reply = send(self.urls[0], Post("/oauth/token", form, self._administrator.basic))
        self.bearer = bearer_header(reply.json["access_token"])
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
        self.stopping.set()
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
            asks += [partial(self.introspect, machine, token) for token in tokens]
            asks += [partial(self.show_client, machine, app) for app in self.known.apps]
            asks += [
                partial(self.issue, machine, app, secret) for app in self.known.apps for secret in app.secrets
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

    def show_client(self, machine: int, app: App) -> Reply | None:
        request = Post(f"/clients/{app.client_id}", None, self.bearer, method="GET")
        return self.ask("read client", machine, request, uses={BEARER, f"registration of {app.client_id}"})

    # Clients that get tokens for themselves.

    def _use_tokens(self, chance: random.Random, _number: int) -> None:
        while not self.stopping.is_set():
            machine, tokens = self.any_machine(chance), self.known.tokens
            action = chance.random()
            if action < 0.3 or not tokens:
                self.issue(machine, self._machine)
            elif action < 0.9:
                self.introspect(machine, chance.choice(tokens[-_RECENT:] if action < 0.7 else tokens))
            else:
                token = chance.choice(tokens[-_RECENT:])
                if not token.grant:
                    self.revoke(chance, token.value, token.app, {token.value})
            self.pause(chance)

    # Clients that refresh tokens of users.

    def _use_families(self, chance: random.Random, number: int) -> None:
        while not self.stopping.is_set():
            tokens = self._authorize(chance, self._cookies[number])
            if tokens is not None:
                TokenFamily(self, chance, self._web, tokens).run()
            self.pause(chance)

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
        machine, code = self.any_machine(chance), ""
        for _ in range(_MAX_REDIRECTS):
            url = urlsplit(location)
            request = Post(f"{url.path}?{url.query}", None, {"Cookie": cookie}, method="GET")
            reply = self.ask("authorize", machine, request, uses={cookie}, is_yes=_is_signed_in)
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
        reply = self.ask("redeem code", self.any_machine(chance), request, uses=uses, audits=_granted)
        return reply.json if reply is not None and reply.status == 200 else None

    # Administrators, who register clients, change their secrets and disable them.

    def _administer(self, chance: random.Random, _number: int) -> None:
        while not self.stopping.is_set():
            app = self._register(chance)
            if app is not None:
                self._work_with(chance, app)
                self.pause(chance)
                self._change_secrets(chance, app)
                if chance.random() < 0.5:
                    self._disable(chance, app)
            self.pause(chance)

    def _register(self, chance: random.Random) -> App | None:
        fields = {"name": "Orchard", "type": "machine", "scopes": ["clients:read"], "redirect_uris": []}
        request = Post("/clients", None, self.bearer, fields | {"grant_types": ["client_credentials"]})
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
            self.issue(self.any_machine(chance), app, chance.choice(app.secrets))

    def _change_secrets(self, chance: random.Random, app: App) -> None:
        """Add a secret and revoke it, while the client uses it at every machine."""
        path = f"/clients/{app.client_id}/credentials"
        reply = self._administrate(
            "add secret",
            chance,
            Post(path, None, self.bearer, {}),
            lambda data: ("credential.created", data["id"]),
        )
        if reply is None or reply.status != 201:
            return
        added = Secret(reply.json["data"]["id"], reply.json["data"]["client_secret"])
        both = App(app.client_id, (*app.secrets, added))
        self.known.apps.append(both)
        self._work_with(chance, both)
        reply = None
        while reply is None and not self.stopping.is_set():
            reply = self._administrate(
                "revoke secret",
                chance,
                Post(f"{path}/{added.id}", None, self.bearer, method="DELETE"),
                lambda data: ("credential.revoked", data["credential_id"]),
                ends={added.id},
            )
        for machine in [*range(len(self.urls))] * 3:
            self.issue(machine, app, added, is_usable=False)
            self.pause(chance)
        self.issue(self.any_machine(chance), app)

    def _disable(self, chance: random.Random, app: App) -> None:
        request = Post(f"/clients/{app.client_id}", None, self.bearer, {"status": "disabled"}, "PUT")
        reply = None
        while reply is None and not self.stopping.is_set():
            reply = self._administrate(
                "disable client",
                chance,
                request,
                lambda data: ("client.updated", data["client_id"]),
                ends={app.client_id},
            )
        for machine in range(len(self.urls)):
            self.issue(machine, app)
        time.sleep(TRUSTED_SECONDS * chance.random() * 1.5)
        for machine in range(len(self.urls)):
            self.issue(machine, app)

    def _administrate(
        self,
        name: str,
        chance: random.Random,
        request: Post,
        audits: Callable[[Any], tuple[str, str]],
        ends: Iterable[str] = (),
    ) -> Reply | None:
        return self.ask(
            name,
            self.any_machine(chance),
            request,
            uses={BEARER},
            ends=ends,
            seconds_elsewhere=TRUSTED_SECONDS,
            audits=lambda reply: audits(reply.json["data"]),
        )


def _is_signed_in(reply: Reply) -> bool:
    return reply.status == 303 and "/login" not in reply.headers["location"]


def _granted(reply: Reply) -> tuple[str, str]:
    return "grant.created", grant_of(reply.json["refresh_token"])


def _app(client: Any) -> App:
    return App(client.client_id, (Secret(f"secret of {client.client_id}", client.secret),))
