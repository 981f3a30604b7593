"""The log of failed requests: the list, one entry, and the button that registers a redirect URI."""

from __future__ import annotations

import shlex
from typing import Any

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.failed_requests import FailedRequestRecord, get_failed_request, list_failed_requests
from app.operations.clients.clients import get_client, update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store.pagination import Page
from app.portal.blueprint import portal
from app.portal.client_pages import client_page
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.audit.failed_requests import CAUSES, closest_difference
from app.rules.errors import Conflict, DomainError, InvalidInput

_LISTING = "portal logs"
_UNREGISTERED = "redirect_uri_not_registered"
# Where a character tells what is wrong.
_OF_ADDRESSES = frozenset({_UNREGISTERED, "redirect_uri_mismatch"})


@portal.get("/portal/<organization>/logs")
@visiting
def logs(visit: Visit) -> Answer:
    """Refused requests of the clients that the visitor may see, the newest first; ``cause``, ``request_id`` narrow."""
    visit.actor.require_for_own("logs:read")
    page, filters = _page(visit)
    return visit.render(
        "portal/logs/list.html",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=pages_of(page, visit.organization.id, _LISTING),
    )


@portal.get("/portal/<organization>/clients/<client_id>/logs")
@visiting
def client_logs(visit: Visit, client_id: str) -> Answer:
    """The same of one client, as a tab of its page."""
    client = get_client(visit.actor, client_id)
    visit.actor.require("logs:read", owner_id=client.created_by_user_id)
    page, filters = _page(visit, client_id=client.client_id)
    return client_page(
        visit,
        client,
        "logs",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=pages_of(page, visit.organization.id, f"{_LISTING} {client.client_id}"),
    )


@portal.get("/portal/<organization>/logs/<failed_request_id>")
@visiting
def log_entry(visit: Visit, failed_request_id: str) -> Answer:
    """What happened, what came and what was expected, and how to mend it."""
    return _entry(visit, get_failed_request(visit.actor, failed_request_id))


@portal.post("/portal/<organization>/logs/<failed_request_id>/redirect-uri")
@visiting
def add_redirect_uri(visit: Visit, failed_request_id: str) -> Answer:
    """The URI that the client sent is registered, by the operation that the form of redirects calls."""
    entry = get_failed_request(visit.actor, failed_request_id)
    visit.actor.require("clients:write", owner_id=entry.client_created_by_user_id)
    if entry.cause != _UNREGISTERED or entry.received is None:
        raise Conflict("This request did not fail for an unregistered redirect URI.")
    client = get_client(visit.actor, entry.client_id)
    try:
        update_client(
            visit.actor,
            entry.client_id,
            {
                "redirect_uris": [
                    *(uri for uri in client.redirect_uris if uri != entry.received),
                    entry.received,
                ]
            },
            expected_version=client.version,
        )
    except (InvalidInput, Conflict) as refusal:
        return _entry(visit, entry, refusal=refusal, code=400)
    return visit.done(f"/clients/{entry.client_id}/redirects", "redirect-added")


def _page(visit: Visit, client_id: str | None = None) -> tuple[Page[FailedRequestRecord], dict[str, str]]:
    chosen = {name: request.args.get(name, "").strip()[:64] for name in ("cause", "request_id")}
    filters = {name: value for name, value in chosen.items() if value}
    if filters.get("cause") not in CAUSES:
        filters.pop("cause", None)
    listing = _LISTING if client_id is None else f"{_LISTING} {client_id}"
    narrowed = filters if client_id is None else filters | {"client_id": client_id}
    after = position(visit.organization.id, listing)
    return list_failed_requests(visit.actor, after=after, filters=narrowed), filters


def _entry(
    visit: Visit, entry: FailedRequestRecord, *, refusal: DomainError | None = None, code: int = 200
) -> BaseResponse:
    is_unregistered = entry.cause == _UNREGISTERED and entry.received is not None
    may_change = visit.actor.has_permission("clients:write", owner_id=entry.client_created_by_user_id)
    return visit.render(
        "portal/logs/entry.html",
        code=code,
        entry=entry,
        difference=closest_difference(entry.received, entry.expected)
        if entry.received and entry.cause in _OF_ADDRESSES
        else None,
        curl=_curl(entry, visit.organization),
        may_add=is_unregistered and may_change,
        refusal=refusal.description if refusal is not None else None,
    )


def _curl(entry: FailedRequestRecord, organization: OrganizationSnapshot) -> str:
    """The request as a command; what was removed is a variable of the shell, for whoever has it to fill in."""
    address = f"{organization.issuer}/oauth/{entry.endpoint}"
    if entry.method == "GET":
        parts = [f"{name}={value}" for name, value in _clear(entry).items()]
        return " \\\n  ".join(
            [f"curl -i -G {address}", *(f"--data-urlencode {shlex.quote(part)}" for part in parts)]
        )
    fields = []
    for name, value in entry.parameters.items():
        shown = f'"{name}=${name.upper()}"' if _is_removed(value) else shlex.quote(f"{name}={value}")
        fields.append(f"--data-urlencode {shown}")
    return " \\\n  ".join([f"curl -i {address}", *fields])


def _clear(entry: FailedRequestRecord) -> dict[str, Any]:
    return {name: value for name, value in entry.parameters.items() if not _is_removed(value)}


def _is_removed(value: str) -> bool:
    return value.startswith("[") and value.endswith(" removed]")
