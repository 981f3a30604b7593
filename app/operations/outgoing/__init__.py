"""Outgoing HTTP: the only place that opens sockets to addresses others gave us (SF-1)."""

from __future__ import annotations

from app.operations.outgoing.failure import OutgoingFailed
from app.operations.outgoing.requests import Reply, get, post
from app.rules.outgoing.outgoing_addresses import OutgoingRefused

__all__ = ["OutgoingFailed", "OutgoingRefused", "Reply", "get", "post"]
