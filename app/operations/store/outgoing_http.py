"""One request to a server of strangers: https, a pinned address, no redirects, little time and little data (SF-2).

A thread that waits for a stranger's server serves nobody, so few may wait at a time and the next is refused at once
(SF-4), and one organization's slow servers never take every place (P2). What is fetched for somebody who waits and
what is delivered later do not take each other's places.

The HTTP library is read when the first request leaves: most workers never send one.
"""

from __future__ import annotations

import http.client
import queue
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.config import current
from app.operations.store.transactions import is_in_transaction
from app.rules.errors import DomainError
from app.rules.store.outgoing_http import Target, parse_target, require_public_addresses

if TYPE_CHECKING:
    from urllib3.connection import HTTPSConnection


class OutgoingRequestFailed(DomainError):
    """No whole answer: not in time, not by a believed certificate, or too large. The cause is for the log."""

    code = "no_answer"


def count_certificate_authorities(ca_bundle: Path) -> int:
    """How many authorities the file holds. Raises OSError when it cannot be read, ValueError when it is no PEM."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust.load_verify_locations(cafile=ca_bundle)
    except ssl.SSLError as error:
        raise ValueError("the file holds no certificates in PEM") from error
    return trust.cert_store_stats()["x509_ca"]


class ConcurrencyLimiter:
    """At most so many at a time, so many for one organization, and so many of it for one host.

    Whoever finds none is refused and does not queue. One organization's servers never hold every place.
    """

    def __init__(self, *, most: int, most_of_one_organization: int, most_of_one_host: int) -> None:
        self._most = most
        self._most_of_one_organization = most_of_one_organization
        self._most_of_one_host = most_of_one_host
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, ...]] = Counter()
        self._in_all = 0

    @contextmanager
    def taken(self, organization_id: str, host: str) -> Iterator[None]:
        """A place is held inside. Raises OutgoingFailed when there is none."""
        held = ((organization_id,), (organization_id, host))
        with self._lock:
            if (
                self._in_all >= self._most
                or self._taken[held[0]] >= self._most_of_one_organization
                or self._taken[held[1]] >= self._most_of_one_host
            ):
                raise OutgoingRequestFailed("Too many requests to servers of others are under way.")
            self._in_all += 1
            self._taken.update(held)
        try:
            yield
        finally:
            with self._lock:
                self._in_all -= 1
                self._taken.subtract(held)
                self._taken = +self._taken


# Look-ups that nobody waits for any more live on until the system gives up on them.
_MOST_LOOKUPS = 16
_lookups = threading.BoundedSemaphore(_MOST_LOOKUPS)


def resolve_host(host: str, port: int, deadline: float) -> list[str]:
    """Every IPv4 and IPv6 address of the host, in the system's order, each once.

    ``deadline`` is a time of the monotonic clock in seconds. Raises OutgoingFailed when there is none by then.
    """
    if not _lookups.acquire(blocking=False):
        raise OutgoingRequestFailed("Too many names are being looked up.")
    answer: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()
    threading.Thread(target=_look_up, args=(host, port, answer), name="look-up", daemon=True).start()
    try:
        found = answer.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise OutgoingRequestFailed("The server's name was not found in time.") from None
    if isinstance(found, Exception):
        raise OutgoingRequestFailed("The server's name was not found.") from found
    return found


def _look_up(host: str, port: int, answer: queue.SimpleQueue[list[str] | OSError | UnicodeError]) -> None:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
    except (OSError, UnicodeError) as error:
        answer.put(error)
    finally:
        _lookups.release()


TOTAL_SECONDS = 5.0
_fetches = ConcurrencyLimiter(most=4, most_of_one_organization=3, most_of_one_host=2)
_deliveries = ConcurrencyLimiter(most=4, most_of_one_organization=3, most_of_one_host=2)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What the server said; header names are in small letters. A redirect is an answer like any other."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def get(
    url: str,
    *,
    organization_id: str,
    accept: str = "application/json",
    max_bytes: int = 65536,
    in_background: bool = False,
) -> HttpResponse:
    """The answer to a GET, at most ``max_bytes`` long; ``in_background`` when nobody waits for it.

    ``organization_id`` is the organization on whose behalf it is asked.

    Raises OutgoingRefused when the address may not be called, OutgoingFailed when no whole answer came in time.
    """
    places = _deliveries if in_background else _fetches
    return _send(places, organization_id, "GET", url, None, {"Accept": accept}, max_bytes)


def post(
    url: str,
    *,
    organization_id: str,
    body: bytes,
    content_type: str,
    headers: Mapping[str, str] | None = None,
    max_bytes: int = 65536,
) -> HttpResponse:
    """The answer to a POST of ``body`` on the organization's behalf; limits and errors are those of ``get``."""
    sent = {**(headers or {}), "Content-Type": content_type}
    return _send(_deliveries, organization_id, "POST", url, body, sent, max_bytes)


def _send(
    places: ConcurrencyLimiter,
    organization_id: str,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    max_bytes: int,
) -> HttpResponse:
    from urllib3.exceptions import HTTPError

    from app.operations.store.outgoing_connections import connect

    if is_in_transaction():
        raise RuntimeError("nothing leaves the process inside a unit of work")
    target = parse_target(url)
    with places.taken(organization_id, target.host):
        deadline = time.monotonic() + TOTAL_SECONDS
        addresses = resolve_host(target.host, target.port, deadline)
        require_public_addresses(target, addresses, current().outgoing_allowed_hosts)
        try:
            connection = connect(target, addresses, deadline, current().outgoing_ca_bundle)
            try:
                return _exchange(connection, method, target, body, headers, max_bytes)
            finally:
                connection.close()
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise OutgoingRequestFailed("The server gave no whole answer in time.") from error


def _exchange(
    connection: HTTPSConnection,
    method: str,
    target: Target,
    body: bytes | None,
    headers: Mapping[str, str],
    max_bytes: int,
) -> HttpResponse:
    connection.request(
        method,
        target.path,
        body=body,
        headers={
            **headers,
            "Host": target.authority,
            "User-Agent": "Gatehouse",
            "Accept-Encoding": "identity",
            "Connection": "close",
        },
        preload_content=False,
        decode_content=False,
    )
    answer = connection.getresponse()
    names = {name.lower(): value for name, value in answer.headers.items()}
    if names.get("content-encoding", "identity").lower() != "identity":
        raise OutgoingRequestFailed("The server's answer is packed although plain text was asked for.")
    content = answer.read(max_bytes + 1, decode_content=False)
    if len(content) > max_bytes:
        raise OutgoingRequestFailed("The server's answer is too large.")
    return HttpResponse(answer.status, names, content)
