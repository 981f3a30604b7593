"""Dispatcher: the threads of a worker that deliver what the outbox holds.

One of them looks for the next message while the others deliver: looking costs one query every few seconds, however
many threads there are. No receiver has two deliveries of this worker at a time, and no organization all threads. Nor
have strangers' servers, however many organizations they are of: mail does not wait for them (P2).
"""

from __future__ import annotations

import random
import threading
from collections import Counter

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from app.extensions import db
from app.models.organization import Organization
from app.operations.store import outbox
from app.operations.store.outbox import Message
from app.operations.store.transactions import read
from app.rules.errors import Unavailable


def require_ready() -> None:
    """Raises Unavailable unless a table can be read: a ping passes on a partitioned node, a table does not."""
    try:
        _read_a_table()
    except DBAPIError as error:
        # Not migrated, no rights, no file: to a load balancer they are one thing.
        raise Unavailable("The database cannot be read.", retry_after=5) from error


@read
def _read_a_table() -> None:
    db.session.execute(select(Organization.id).limit(1)).first()


THREADS = 3
MOST_OF_ONE_ORGANIZATION = 2
# What another process wrote, and what is due again, is found so late at the latest.
LOOKS_EVERY_SECONDS = 4.0


class Dispatcher:
    """What its threads share. Each thread calls ``deliver_next`` again and again."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._receivers: set[tuple[str, str]] = set()
        self._organizations: Counter[str] = Counter()
        self._strangers = 0

    def deliver_next(self) -> bool:
        """Whether a message was delivered or put off; when none is due it waits for a while and says no."""
        with self._turn:
            outbox.messages_available.clear()
            message = self._take()
            if message is None:
                # Workers that started together do not look together.
                outbox.messages_available.wait(LOOKS_EVERY_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
                return False
        try:
            outbox.deliver(message)
        finally:
            self._leave(message)
        return True

    def _take(self) -> Message | None:
        with self._lock:
            receivers = set(self._receivers)
            full = {name for name, busy in self._organizations.items() if busy >= MOST_OF_ONE_ORGANIZATION}
            is_full_of_strangers = self._strangers >= THREADS - 1
        message = outbox.claim_due_message(
            busy_receivers=receivers, full_organizations=full, skip_external_servers=is_full_of_strangers
        )
        if message is not None:
            with self._lock:
                self._strangers += outbox.is_for_external_server(message)
                self._receivers.add((message.organization_id, message.receiver))
                self._organizations[message.organization_id] += 1
        return message

    def _leave(self, message: Message) -> None:
        with self._lock:
            self._strangers -= outbox.is_for_external_server(message)
            self._receivers.discard((message.organization_id, message.receiver))
            self._organizations[message.organization_id] -= 1
            if not self._organizations[message.organization_id]:
                del self._organizations[message.organization_id]
        # Somebody else's message may have waited for this place.
        outbox.messages_available.set()
