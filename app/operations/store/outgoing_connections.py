"""TLS connections to resolved addresses, with one deadline for everything.

Separate from ``outgoing_http`` so that urllib3 is loaded only when the first request leaves the process.
"""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError

from app.operations.store.outgoing_http import tls_context
from app.rules.store.outgoing_http import Target

CONNECT_SECONDS = 3.0


class _DeadlineSocket(ssl.SSLSocket):
    """Give all reads and writes one common deadline, so that a server cannot prolong it by sending single bytes."""

    deadline = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_seconds_left(self.deadline))
        return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_seconds_left(self.deadline))
        return super().send(*args, **kwargs)


def connect(
    target: Target, ip_addresses: Sequence[str], deadline: float, ca_bundle: Path | None
) -> HTTPSConnection:
    """Connect to the first address that responds, and verify its certificate for the target's host name.

    The name is not resolved again. ``deadline`` is a time of the monotonic clock in seconds. Raises urllib3's
    HTTPError or OSError if no address responds.
    """
    context = _tls_context(ca_bundle, ca_bundle.stat().st_mtime_ns if ca_bundle else 0)
    for attempt, ip_address in enumerate(ip_addresses, start=1):
        # The TCP handshake and the TLS handshake may each take this long.
        timeout = min(CONNECT_SECONDS, _seconds_left(deadline) / 2)
        connection = HTTPSConnection(
            ip_address, target.port, timeout=timeout, server_hostname=target.host, ssl_context=context
        )
        try:
            connection.connect()
        except (HTTPError, OSError):
            connection.close()
            if attempt == len(ip_addresses):
                raise
            continue
        if not isinstance(connection.sock, _DeadlineSocket):
            raise TypeError("urllib3 did not use the socket class of the TLS context")
        connection.sock.deadline = deadline
        return connection
    raise OSError("the host has no address")


@functools.lru_cache(maxsize=2)
def _tls_context(ca_bundle: Path | None, changed_at: int) -> ssl.SSLContext:
    context = tls_context(ca_bundle)
    context.sslsocket_class = _DeadlineSocket
    return context


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of this request has passed")
    return left
