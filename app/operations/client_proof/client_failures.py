"""Failed client authentications: counted in this process by client and network, so that a flood of them stays cheap.

A secret has 256 random bits and cannot be guessed; what is limited is the work that guessing costs. A right secret
that this process knows is always let in, whatever failed before it (CA-5).
"""

from __future__ import annotations

import time

from app.rules.errors import TooManyRequests
from app.rules.people.networks import network_of

MOST = 30
WINDOW_SECONDS = 60.0
_MOST_REMEMBERED = 20_000

_failures: dict[tuple[str, str], tuple[float, int]] = {}


def require_room(client_id: str, address: str | None) -> None:
    """Nothing. Raises TooManyRequests after thirty failures in a minute for a client from one network."""
    tick = time.monotonic()
    began, count = _counted(_key(client_id, address), tick)
    if count >= MOST:
        raise TooManyRequests(
            "Client authentication failed too often from here. Check the secret, then try again.",
            retry_after=max(1, int(WINDOW_SECONDS - (tick - began))),
        )


def note_failure(client_id: str, address: str | None) -> None:
    """One more failure is counted."""
    key = _key(client_id, address)
    began, count = _counted(key, time.monotonic())
    if len(_failures) >= _MOST_REMEMBERED:
        _failures.clear()
    _failures[key] = (began, count + 1)


def _key(client_id: str, address: str | None) -> tuple[str, str]:
    return client_id[:64], network_of(address)


def _counted(key: tuple[str, str], tick: float) -> tuple[float, int]:
    began, count = _failures.get(key, (tick, 0))
    return (tick, 0) if tick - began > WINDOW_SECONDS else (began, count)


def forget_failures() -> None:
    """Nothing is remembered."""
    _failures.clear()
