"""Failed client authentications: counted in this process by client and network, so that a flood of them stays cheap.

A secret has 256 random bits and cannot be guessed; what is limited is the work that guessing costs. A right secret
that this process knows is always let in, whatever failed before it (CA-5). It is counted by organization, too: what
fails at one organization's endpoint keeps nobody waiting at another's (TN-9).
"""

from __future__ import annotations

import time

from app.operations.bounded import Kept
from app.rules.errors import TooManyRequests
from app.rules.identifiers import parse_client_id
from app.rules.people.networks import networks_of

MOST = 30
WINDOW_SECONDS = 60.0
_MOST_REMEMBERED = 20_000

_NOBODYS = ""
_failures: Kept[tuple[float, int]] = Kept(_MOST_REMEMBERED)


def require_room(organization_id: str | None, client_id: str, address: str | None) -> None:
    """Nothing. Raises TooManyRequests after thirty failures in a minute for a client from one network.

    ``organization_id`` is that of the path; without one the client names its own.
    """
    tick = time.monotonic()
    for network, times in networks_of(address):
        began, count = _counted(organization_id or _named_by(client_id), client_id, network, tick)
        if count >= MOST * times:
            raise TooManyRequests(
                "Client authentication failed too often from here. Check the secret, then try again.",
                retry_after=max(1, int(WINDOW_SECONDS - (tick - began))),
            )


def note_failure(organization_id: str | None, client_id: str, address: str | None) -> None:
    """One more failure is counted; the arguments are those of ``require_room``."""
    organization_id = organization_id or _named_by(client_id)
    for network, _ in networks_of(address):
        began, count = _counted(organization_id, client_id, network, time.monotonic())
        _failures.put(organization_id, client_id[:64], network, value=(began, count + 1))


def _named_by(client_id: str) -> str:
    parsed = parse_client_id(client_id)
    return parsed[0] if parsed is not None else _NOBODYS


def _counted(organization_id: str, client_id: str, network: str, tick: float) -> tuple[float, int]:
    began, count = _failures.get(organization_id, client_id[:64], network) or (tick, 0)
    return (tick, 0) if tick - began > WINDOW_SECONDS else (began, count)


def forget_failures() -> None:
    """Nothing is remembered."""
    _failures.clear()
