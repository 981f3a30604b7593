"""One request to a server of strangers: https, a pinned address, no redirects, little time and little data (SF-2).

A thread that waits for a stranger's server serves nobody, so few may wait at a time and the next is refused at once
(SF-4), and one organization's slow servers never take every place (P2). What is fetched for somebody who waits and
what is delivered later do not take each other's places.

The HTTP library is read when the first request leaves: most workers never send one.
"""

from __future__ import annotations

import functools
import http.client
import queue
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError

from app.config import current
from app.operations.store.transactions import is_under_way
from app.rules.errors import DomainError
from app.rules.store.outgoing_http import OutgoingRefused, Target, check_addresses, target_of

if TYPE_CHECKING:
    from urllib3.connection import HTTPSConnection


__all__ = ["OutgoingFailed", "OutgoingRefused", "Reply", "get", "post"]


class OutgoingFailed(DomainError):
    """No whole answer: not in time, not by a believed certificate, or too large. The cause is for the log."""

    code = "no_answer"


def count_authorities(ca_bundle: Path) -> int:
    """How many authorities the file holds. Raises OSError when it cannot be read, ValueError when it is no PEM."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust.load_verify_locations(cafile=ca_bundle)
    except ssl.SSLError as error:
        raise ValueError("the file holds no certificates in PEM") from error
    return trust.cert_store_stats()["x509_ca"]


class Places:
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
                raise OutgoingFailed("Too many requests to servers of others are under way.")
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


def addresses_of(host: str, port: int, deadline: float) -> list[str]:
    """Every IPv4 and IPv6 address of the host, in the system's order, each once.

    ``deadline`` is a time of the monotonic clock in seconds. Raises OutgoingFailed when there is none by then.
    """
    if not _lookups.acquire(blocking=False):
        raise OutgoingFailed("Too many names are being looked up.")
    answer: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()
    threading.Thread(target=_look_up, args=(host, port, answer), name="look-up", daemon=True).start()
    try:
        found = answer.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise OutgoingFailed("The server's name was not found in time.") from None
    if isinstance(found, Exception):
        raise OutgoingFailed("The server's name was not found.") from found
    return found


def _look_up(host: str, port: int, answer: queue.SimpleQueue[list[str] | OSError | UnicodeError]) -> None:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
    except (OSError, UnicodeError) as error:
        answer.put(error)
    finally:
        _lookups.release()


CONNECT_SECONDS = 3.0


class _DeadlineSocket(ssl.SSLSocket):
    """Its reads and writes end together at one time: a server that drips single bytes gains nothing."""

    deadline = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_left(self.deadline))
        return super().send(*args, **kwargs)


def connected(
    target: Target, addresses: Sequence[str], deadline: float, ca_bundle: Path | None
) -> HTTPSConnection:
    """A connection to the first address that answers, its certificate checked for the target's name.

    No name is looked up again. ``deadline`` is a time of the monotonic clock in seconds. Raises urllib3's HTTPError
    or OSError when no address answers.
    """
    trust = _trust(ca_bundle, ca_bundle.stat().st_mtime_ns if ca_bundle else 0)
    for tried, address in enumerate(addresses, start=1):
        # The TCP and the TLS handshake may each take this long.
        patience = min(CONNECT_SECONDS, _left(deadline) / 2)
        connection = HTTPSConnection(
            address, target.port, timeout=patience, server_hostname=target.host, ssl_context=trust
        )
        try:
            connection.connect()
        except (HTTPError, OSError):
            connection.close()
            if tried == len(addresses):
                raise
            continue
        if not isinstance(connection.sock, _DeadlineSocket):
            raise TypeError("the connection is not the one that was asked for")
        connection.sock.deadline = deadline
        return connection
    raise OSError("the host has no address")


@functools.lru_cache(maxsize=2)
def _trust(ca_bundle: Path | None, changed_at: int) -> ssl.SSLContext:
    # create_default_context would write session keys wherever SSLKEYLOGFILE of the environment says.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _DeadlineSocket
    if ca_bundle is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=ca_bundle)
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time of this request is over")
    return left


TOTAL_SECONDS = 5.0
_fetches = Places(most=4, most_of_one_organization=3, most_of_one_host=2)
_deliveries = Places(most=4, most_of_one_organization=3, most_of_one_host=2)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server said; header names are in small letters. A redirect is an answer like any other."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def get(
    url: str,
    *,
    organization_id: str,
    accept: str = "application/json",
    most_bytes: int = 65536,
    in_background: bool = False,
) -> Reply:
    """The answer to a GET, at most ``most_bytes`` long; ``in_background`` when nobody waits for it.

    ``organization_id`` is the organization on whose behalf it is asked.

    Raises OutgoingRefused when the address may not be called, OutgoingFailed when no whole answer came in time.
    """
    places = _deliveries if in_background else _fetches
    return _send(places, organization_id, "GET", url, None, {"Accept": accept}, most_bytes)


def post(
    url: str,
    *,
    organization_id: str,
    body: bytes,
    content_type: str,
    headers: Mapping[str, str] | None = None,
    most_bytes: int = 65536,
) -> Reply:
    """The answer to a POST of ``body`` on the organization's behalf; limits and errors are those of ``get``."""
    sent = {**(headers or {}), "Content-Type": content_type}
    return _send(_deliveries, organization_id, "POST", url, body, sent, most_bytes)


def _send(
    places: Places,
    organization_id: str,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    most_bytes: int,
) -> Reply:
    from urllib3.exceptions import HTTPError

    pass

    if is_under_way():
        raise RuntimeError("nothing leaves the process inside a unit of work")
    target = target_of(url)
    with places.taken(organization_id, target.host):
        deadline = time.monotonic() + TOTAL_SECONDS
        addresses = addresses_of(target.host, target.port, deadline)
        check_addresses(target, addresses, current().outgoing_allowed_hosts)
        try:
            connection = connected(target, addresses, deadline, current().outgoing_ca_bundle)
            try:
                return _exchange(connection, method, target, body, headers, most_bytes)
            finally:
                connection.close()
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise OutgoingFailed("The server gave no whole answer in time.") from error


def _exchange(
    connection: HTTPSConnection,
    method: str,
    target: Target,
    body: bytes | None,
    headers: Mapping[str, str],
    most_bytes: int,
) -> Reply:
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
        raise OutgoingFailed("The server's answer is packed although plain text was asked for.")
    content = answer.read(most_bytes + 1, decode_content=False)
    if len(content) > most_bytes:
        raise OutgoingFailed("The server's answer is too large.")
    return Reply(answer.status, names, content)
