"""Token traffic with a record of what was acknowledged."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from types import TracebackType

from tests.factories import MadeClient
from tests.support.concurrent_requests import Post, Reply, send

# After a response that is no token, or none: what refuses at once would otherwise be kept busy with refusing.
PAUSE_SECONDS = 0.05


class Traffic:
    """Threads that request tokens until the ``with`` block ends; each pauses for so many seconds after a response."""

    def __init__(self, server: str, client: MadeClient, threads: int = 8, *, pause: float = 0.0) -> None:
        self.server, self.pause = server, pause
        self.request = Post("/oauth/token", {"grant_type": "client_credentials"}, client.basic)
        self.tokens: list[str] = []
        self.refused: list[Reply] = []
        self.cut = 0
        self.slowest = 0.0
        """Seconds that the slowest answer took."""
        self.last_refusal = 0.0
        self.last_issued = 0.0
        """When the last request that was answered with a token was sent, in monotonic seconds."""
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @property
    def statuses(self) -> Counter[int]:
        """Return how often each error occurred."""
        return Counter(reply.status for reply in self.refused)

    def _ask(self) -> None:
        while not self._stopping.is_set():
            sent_at = time.monotonic()
            try:
                reply = send(self.server, self.request)
            except (http.client.HTTPException, OSError):
                self.cut += 1
                self._stopping.wait(max(PAUSE_SECONDS, self.pause))
                continue
            self.slowest = max(self.slowest, time.monotonic() - sent_at)
            if reply.status == 200:
                self.tokens.append(reply.json["access_token"])
                self.last_issued = max(self.last_issued, sent_at)
                self._stopping.wait(self.pause)
            else:
                self.refused.append(reply)
                self.last_refusal = time.monotonic()
                self._stopping.wait(max(PAUSE_SECONDS, self.pause))
