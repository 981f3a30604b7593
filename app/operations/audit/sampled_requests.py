"""Samples of clients' successful requests, kept for a day, and the list of them together with the failed ones.

A sample answers "did it arrive?". How many requests there were is in the usage counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, select

from app.models.audit import SampledRequest
from app.models.base import is_same
from app.models.client import Client
from app.operations.audit.failed_requests import (
    FailedRequestRecord,
    LoggedRequest,
    list_failed_requests,
    request_conditions,
    store_requests,
)
from app.operations.directory import lookups
from app.operations.grants.grant_lists import restrict_to_own_clients
from app.operations.store import clock
from app.operations.store.rows import Page, PageRequest, make_record, merge_pages, read_page
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import format_client_id

RETENTION = timedelta(days=1)
FAILED, SUCCEEDED = "failed", "succeeded"
OUTCOMES = (FAILED, SUCCEEDED)


class SampleRecord(Struct, frozen=True):
    """A successful request in the list."""

    id: UUID
    at: datetime
    request_id: str
    client_id: str
    client_name: str
    endpoint: str
    method: str
    status: int
    parameters: Mapping[str, str]
    address: str | None


@read
def list_requests(
    actor: Actor,
    page_request: PageRequest = PageRequest(),
    *,
    filters: Mapping[str, str] = {},
    outcome: str | None = None,
) -> Page[FailedRequestRecord | SampleRecord]:
    """Return failed requests and samples of successful ones, newest first, or only those of one of OUTCOMES.

    ``filters`` are those of ``list_failed_requests``; with ``cause`` nothing that succeeded matches. Raises
    InvalidInput, Forbidden.
    """
    pages: list[Page[Any]] = []
    if outcome != SUCCEEDED:
        pages.append(list_failed_requests(actor, page_request, filters=filters))
    if outcome != FAILED and "cause" not in filters:
        pages.append(
            read_page(_visible_samples(actor, filters), (SampledRequest.id,), page_request).map(_record)
        )
    return merge_pages(pages, page_request)


def store_samples(actor: Actor, samples: Iterable[LoggedRequest]) -> int:
    """Store samples of known clients for organizations that keep this log, and return how many.

    ``actor`` is the service. Samples that cannot be written are dropped with a warning.
    """
    return store_requests(actor, SampledRequest, samples, _to_row)


def _visible_samples(actor: Actor, filters: Mapping[str, str]) -> Select[Any]:
    statement = (
        select(SampledRequest.__table__, Client.name.label("client_name"))
        .join(Client, is_same(Client.id, SampledRequest.client_id))
        .where(
            SampledRequest.organization_id == actor.organization_id,
            SampledRequest.expires_at > clock.now(),
        )
    )
    statement = restrict_to_own_clients(actor, statement, "logs:read")
    return statement.where(*request_conditions(actor, SampledRequest, filters))


def _record(row: Any) -> SampleRecord:
    return make_record(SampleRecord, row, client_id=format_client_id(row.organization_id, row.client_id))


def _to_row(sample: LoggedRequest) -> dict[str, Any] | None:
    try:
        settings = lookups.get_organization_by_id(sample.client[0], fresh=False).settings
    except NotFound:
        # The organization was deleted meanwhile, with everything that it kept.
        return None
    return {"expires_at": sample.at + RETENTION} if settings["audit"]["failed_requests"] else None
