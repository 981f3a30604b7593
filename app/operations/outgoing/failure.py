"""When a server that may be called did not answer."""

from __future__ import annotations

from app.rules.errors import DomainError


class OutgoingFailed(DomainError):
    """No whole answer: not in time, not by a believed certificate, or too large. The cause is for the log."""

    code = "no_answer"
