"""One request to a server of strangers: https, a pinned address, no redirects, little time and little data (SF-2).

A thread that waits for a stranger's server serves nobody, so few may wait at a time and the next is refused at once
(SF-4), and one organization's slow servers never take every place (P2). What is fetched for somebody who waits and
what is delivered later do not take each other's places.

The HTTP library is read when the first request leaves: most workers never send one.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.config import current
from app.operations.outgoing.failure import OutgoingFailed
from app.operations.outgoing.places import Places
from app.operations.outgoing.resolver import addresses_of
from app.operations.transaction import is_under_way
from app.rules.outgoing.outgoing_addresses import Target, check_addresses, target_of

if TYPE_CHECKING:
    from urllib3.connection import HTTPSConnection

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

    from app.operations.outgoing.connections import connected

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
