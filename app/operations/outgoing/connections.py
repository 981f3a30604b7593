"""A TLS connection to an address that was checked, for the name it was checked for, that ends at a deadline."""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError

from app.rules.outgoing.outgoing_addresses import Target

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
