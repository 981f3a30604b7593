"""The log of failed requests: the list, one entry, and a button that adds the redirect URI."""

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
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page
from app.rules.audit.failed_requests import CAUSES, closest_difference
from app.rules.errors import Conflict, DomainError, InvalidInput

_LISTING = "portal logs"
_UNREGISTERED = "redirect_uri_not_registered"
# The page highlights the first different character for these causes.
_URI_CAUSES = frozenset({_UNREGISTERED, "redirect_uri_mismatch"})


@portal.get("/portal/<organization>/logs")
@portal_page
def logs(context: PortalContext) -> PageResponse:
    """List refused requests, newest first; ``cause`` and ``request_id`` filter."""
    context.actor.require_for_own("logs:read")
    page, filters = _list(context)
    return context.render(
        "portal/logs/list.html",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=context.pager(page, _LISTING),
    )


@portal.get("/portal/<organization>/clients/<client_id>/logs")
@portal_page
def client_logs(context: PortalContext, client_id: str) -> PageResponse:
    """List the refused requests of one client, as a tab of its page."""
    client = get_client(context.actor, client_id)
    context.actor.require("logs:read", owner_id=client.created_by_user_id)
    page, filters = _list(context, client_id=client.client_id)
    return client_page(
        context,
        client,
        "logs",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=context.pager(page, f"{_LISTING} {client.client_id}"),
    )


@portal.get("/portal/<organization>/logs/<failed_request_id>")
@portal_page
def log_entry(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Show what happened, the received and expected values, and how to fix it."""
    return _entry(context, get_failed_request(context.actor, failed_request_id))


@portal.post("/portal/<organization>/logs/<failed_request_id>/redirect-uri")
@portal_page
def add_redirect_uri(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Register the redirect URI that the client sent."""
    entry = get_failed_request(context.actor, failed_request_id)
    context.actor.require("clients:write", owner_id=entry.client_created_by_user_id)
    if entry.cause != _UNREGISTERED or entry.received is None:
        raise Conflict("This request didn’t fail because of an unregistered redirect URI.")
    client = get_client(context.actor, entry.client_id)
    try:
        update_client(
            context.actor,
            entry.client_id,
            {
                "redirect_uris": [
                    *(uri for uri in client.redirect_uris if uri != entry.received),
                    entry.received,
                ]
            },
            expected_version=client.version,
        )
    except (InvalidInput, Conflict) as error:
        return _entry(context, entry, error=error, code=400)
    return context.done(f"/clients/{entry.client_id}/redirects", "redirect-added")


def _list(
    context: PortalContext, client_id: str | None = None
) -> tuple[Page[FailedRequestRecord], dict[str, str]]:
    values = {name: request.args.get(name, "").strip()[:64] for name in ("cause", "request_id")}
    filters = {name: value for name, value in values.items() if value}
    if filters.get("cause") not in CAUSES:
        filters.pop("cause", None)
    listing = _LISTING if client_id is None else f"{_LISTING} {client_id}"
    all_filters = filters if client_id is None else filters | {"client_id": client_id}
    after = context.position(listing)
    return list_failed_requests(context.actor, after=after, filters=all_filters), filters


def _entry(
    context: PortalContext, entry: FailedRequestRecord, *, error: DomainError | None = None, code: int = 200
) -> BaseResponse:
    is_unregistered = entry.cause == _UNREGISTERED and entry.received is not None
    may_change = context.actor.has_permission("clients:write", owner_id=entry.client_created_by_user_id)
    return context.render(
        "portal/logs/entry.html",
        code=code,
        entry=entry,
        difference=closest_difference(entry.received, entry.expected)
        if entry.received and entry.cause in _URI_CAUSES
        else None,
        curl=_curl(entry, context.organization),
        may_add=is_unregistered and may_change,
        error=error.description if error is not None else None,
    )


def _curl(entry: FailedRequestRecord, organization: OrganizationSnapshot) -> str:
    """Return the request as a curl command, with shell variables in place of removed secrets."""
    url = f"{organization.issuer}/oauth/{entry.endpoint}"
    if entry.method == "GET":
        parts = [f"{name}={value}" for name, value in _visible_parameters(entry).items()]
        return " \\\n  ".join(
            [f"curl -i -G {url}", *(f"--data-urlencode {shlex.quote(part)}" for part in parts)]
        )
    fields = []
    for name, value in entry.parameters.items():
        shown = f'"{name}=${name.upper()}"' if _is_removed(value) else shlex.quote(f"{name}={value}")
        fields.append(f"--data-urlencode {shown}")
    return " \\\n  ".join([f"curl -i {url}", *fields])


def _visible_parameters(entry: FailedRequestRecord) -> dict[str, Any]:
    return {name: value for name, value in entry.parameters.items() if not _is_removed(value)}


def _is_removed(value: str) -> bool:
    return value.startswith("[") and value.endswith(" removed]")
