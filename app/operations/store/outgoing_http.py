"""Requests to servers of third parties: https only, a checked address, no redirects, limited time and size (SF-2).

A thread that waits for such a server handles no other request, so few may wait at a time, and further requests are
rejected immediately (SF-4). One organization's slow servers never use all slots (P2). Fetches that a user waits for,
sign-ins with identity providers and background deliveries have separate slots.

The HTTP library is loaded when the first request leaves: most workers never send one.
"""

from __future__ import annotations

import http.client
import logging
import queue
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app.config import current
from app.extensions import in_transaction
from app.operations.store.slots import Slots
from app.rules.errors import DomainError, HasDefaultText
from app.rules.languages.translation import lazy_gettext
from app.rules.store.outgoing_http import (
    OutgoingRequestBlocked,
    Target,
    is_ip_address,
    parse_target,
    require_public_addresses,
    require_web_port,
)

if TYPE_CHECKING:
    from urllib3.connection import HTTPSConnection

_log = logging.getLogger("gatehouse.outgoing")
_importing = threading.Lock()


class OutgoingRequestFailed(DomainError):
    """No complete response: it was late, too large, or without a trusted certificate. The cause is for the log."""

    code = "no_answer"


class ServerUnreachable(HasDefaultText, OutgoingRequestFailed):
    """The server cannot be reached: always with the same words, and with the cause in this server's log alone.

    Whoever chose the URL could otherwise ask which names exist in the network of this server (SF-5).
    """

    default_description = lazy_gettext(
        "The server could not be reached, or sent no complete response in time."
    )


def tls_context(ca_bundle: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the system's certificate authorities, or only the bundle's."""
    # create_default_context would write session keys to the file named by SSLKEYLOGFILE.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_bundle is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=ca_bundle)
    return context


def count_certificate_authorities(ca_bundle: Path) -> int:
    """Count the certificate authorities in a PEM file. Raises OSError if it cannot be read, ValueError if it is not
    PEM.
    """
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust.load_verify_locations(cafile=ca_bundle)
    except ssl.SSLError as error:
        raise ValueError("the file holds no certificates in PEM") from error
    return trust.cert_store_stats()["x509_ca"]


class HostNotFound(Exception):
    """The host name has no address, or not in time."""


def _refuse() -> OutgoingRequestFailed:
    return OutgoingRequestFailed("Too many requests to external servers are in progress.")


# A lookup that timed out keeps its slot until the system gives up on it, which may take half a minute. An organization
# needs as many slots as it can send requests.
_lookup_slots = Slots(28, 12, _refuse, per_host=10)


def resolve_host(organization_id: str, host: str, port: int, deadline: float) -> list[str]:
    """Return every IPv4 and IPv6 address of the host once, in the order of the system.

    ``deadline`` is a time of the monotonic clock in seconds. Raises HostNotFound if none is found by then, and
    OutgoingRequestFailed if too many threads are looking, for the organization or in all.
    """
    slot = _lookup_slots.take(organization_id, host)
    answer: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()
    thread = threading.Thread(target=_look_up, args=(host, port, slot, answer), name="look-up", daemon=True)
    try:
        thread.start()
    except BaseException:
        slot.close()
        raise
    try:
        found = answer.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise HostNotFound("the host name could not be resolved in time") from None
    if isinstance(found, Exception):
        raise HostNotFound("the host name could not be resolved") from found
    return found


def _look_up(
    host: str, port: int, slot: ExitStack, answer: queue.SimpleQueue[list[str] | OSError | UnicodeError]
) -> None:
    found: list[str] | OSError | UnicodeError
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(row[4][0]) for row in rows))
    except (OSError, UnicodeError) as error:
        found = error
    finally:
        slot.close()
    answer.put(found)


TOTAL_SECONDS = 5.0
_fetch_slots = Slots(6, 3, _refuse, per_host=2)
_delivery_slots = Slots(6, 3, _refuse, per_host=2)
_sign_in_slots = Slots(12, 6, _refuse, per_host=6)


class HttpResponse(Struct, frozen=True):
    """Response of the server, with lower-case header names. Redirects are returned and not followed."""

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
    """Send a GET request on behalf of the organization and return a response of at most ``max_bytes``.

    Set ``in_background`` if no user waits for the response. Raises OutgoingRequestBlocked if the URL as it is written
    may not be called, and OutgoingRequestFailed if no complete response arrives in time.
    """
    slots = _delivery_slots if in_background else _fetch_slots
    return _send(slots, organization_id, "GET", url, None, {"Accept": accept}, max_bytes)


def request_for_sign_in(
    url: str,
    *,
    organization_id: str,
    headers: Mapping[str, str],
    form: bytes | None = None,
    max_bytes: int = 65536,
) -> HttpResponse:
    """Send a GET request, or a POST request with the encoded ``form``, to an identity provider while a user signs in.

    Many users may sign in at once, so these requests have slots of their own. Return a response of at most
    ``max_bytes``. Errors are those of ``get``.
    """
    sent = {"Accept": "application/json", **headers}
    if form is None:
        return _send(_sign_in_slots, organization_id, "GET", url, None, sent, max_bytes)
    sent["Content-Type"] = "application/x-www-form-urlencoded"
    return _send(_sign_in_slots, organization_id, "POST", url, form, sent, max_bytes)


def post(
    url: str,
    *,
    organization_id: str,
    body: bytes,
    content_type: str,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """Send a POST request on behalf of the organization. Errors are those of ``get``.

    The status is the answer: the body of the response, whatever its size and encoding, is left out.
    """
    sent = {**(headers or {}), "Content-Type": content_type}
    return _send(_delivery_slots, organization_id, "POST", url, body, sent, None)


def _send(
    slots: Slots,
    organization_id: str,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    max_bytes: int | None,
) -> HttpResponse:
    # Of threads that import a package with circular imports at once, some get an incomplete module.
    with _importing:
        from urllib3.exceptions import HTTPError

        from app.operations.store.outgoing_connections import connect

    if in_transaction():
        raise RuntimeError("no request may leave the process inside a transaction")
    target = parse_target(url)
    require_web_port(target, current().outgoing_allowed_hosts)
    if is_ip_address(target.host):
        # The URL itself says where it points to, so this reveals nothing.
        require_public_addresses(target, [target.host], current().outgoing_allowed_hosts)
    with slots.take(organization_id, target.host):
        deadline = time.monotonic() + TOTAL_SECONDS
        try:
            addresses = resolve_host(organization_id, target.host, target.port, deadline)
            require_public_addresses(target, addresses, current().outgoing_allowed_hosts)
            connection = connect(target, addresses, deadline, current().outgoing_ca_bundle)
            try:
                return _exchange(connection, method, target, body, headers, max_bytes)
            finally:
                connection.close()
        except (HTTPError, http.client.HTTPException, OSError, HostNotFound, OutgoingRequestBlocked) as error:
            _log.info("%s was not reached for %s: %s", target.authority, organization_id, error)
            raise ServerUnreachable from error


def _exchange(
    connection: HTTPSConnection,
    method: str,
    target: Target,
    body: bytes | None,
    headers: Mapping[str, str],
    max_bytes: int | None,
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
    response = connection.getresponse()
    names = {name.lower(): value for name, value in response.headers.items()}
    if max_bytes is None:
        return HttpResponse(response.status, names, b"")
    if names.get("content-encoding", "identity").lower() != "identity":
        raise OutgoingRequestFailed("The server compressed its response although that was not allowed.")
    content = response.read(max_bytes + 1, decode_content=False)
    if len(content) > max_bytes:
        raise OutgoingRequestFailed("The server's response is too large.")
    return HttpResponse(response.status, names, content)
