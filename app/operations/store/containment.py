"""Keep a fault in one organization's rows from ending a job for the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.operations.store.leases import LeaseLost
from app.rules.errors import Unavailable

_log = logging.getLogger("gatehouse.janitor")


@contextmanager
def contained(work: str, owner: str) -> Iterator[None]:
    """Log an error of a part of a job, so that the job goes on with the next part.

    ``work`` says what was not done, and ``owner`` for which organization or table. Raises LeaseLost and Unavailable,
    which concern all parts.
    """
    try:
        yield
    except (LeaseLost, Unavailable):
        raise
    except Exception:  # noqa: BLE001 - one organization must not end a job for the others
        _log.exception("%s of %s was skipped", work, owner)
