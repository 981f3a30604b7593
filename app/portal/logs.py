"""The audit log with its export, and the log of failed requests."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from flask import json, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.audit_events import (
    AuditRecord,
    export_audit_events,
    find_target_names,
    get_audit_event,
    list_audit_events,
)
from app.operations.audit.failed_requests import FailedRequestRecord, get_failed_request, list_failed_requests
from app.operations.clients.clients import get_client, update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store.transactions import Page
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.labels import AUDIT_ACTIONS
from app.rules.audit.failed_requests import CAUSES, closest_difference
from app.rules.errors import Conflict, DomainError, InvalidInput, NotFound
from app.web.downloads import download

_LISTING = "portal audit"
_EXACT = ("action", "actor", "target", "request_id")
_DAYS = ("since", "until")
_COLUMNS = (
    "id", "at", "action", "actor_type", "actor_id", "actor", "actor_organization", "target_type", "target_id",
    "address", "request_id", "before", "after",
)  # fmt: skip
# A spreadsheet treats text that begins like this as a formula.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
_FAILED_REQUESTS_LISTING = "portal logs"
# The field that lacks the received URI, by cause: the page offers to add it.
_UNREGISTERED = {
    "redirect_uri_not_registered": "redirect_uris",
    "post_logout_redirect_uri_not_registered": "post_logout_redirect_uris",
}
# The page highlights the first different character for these causes.
_URI_CAUSES = frozenset({*_UNREGISTERED, "redirect_uri_mismatch"})
# The setting that rejected the request, by cause: its topic and its field.
_SETTINGS = {"pkce_or_nonce_missing": "clients#oauth-pkce"}


@portal_page("/audit", "GET")
def audit_log(context: PortalContext) -> PageResponse:
    """List the events, newest first; ``since`` and ``until`` are days, both inclusive."""
    shown, filters = _filters()
    page = list_audit_events(context.actor, after=context.position(_LISTING), filters=filters)
    return context.render(
        "portal/audit/list.html",
        page=page,
        names=find_target_names(context.actor, page.items),
        filters=shown,
        actions=AUDIT_ACTIONS,
        pager=context.pager(page, _LISTING),
    )


@portal_page("/audit/<event_id>", "GET")
def audit_event(context: PortalContext, event_id: str) -> PageResponse:
    """Show who did what, when and from where, and each changed field."""
    event = get_audit_event(context.actor, event_id)
    target = find_target_names(context.actor, [event]).get(event.id)
    return context.render("portal/audit/event.html", event=event, target=target, actions=AUDIT_ACTIONS)


@portal_page("/audit/export/<file_format>", "GET")
def audit_export(context: PortalContext, file_format: str) -> PageResponse:
    """Download all pages of the list as ``csv`` or ``json``."""
    if file_format not in _EXPORT_FORMATS:
        raise NotFound("This export format does not exist.")
    mimetype, lines = _EXPORT_FORMATS[file_format]
    records = export_audit_events(context.actor, filters=_filters()[1])
    return download(lines(records), mimetype, f"{context.organization.slug}-audit.{file_format}")


def _filters() -> tuple[dict[str, str], dict[str, str]]:
    """Return the filters as the form shows them and as the operation takes them; invalid days are ignored."""
    sent = {name: request.args.get(name, "").strip()[:64] for name in (*_EXACT, *_DAYS)}
    shown = {name: sent[name] for name in _EXACT if sent[name]}
    asked = dict(shown)
    for name in _DAYS:
        day = _day(sent[name])
        if day is not None:
            shown[name] = sent[name]
            start = datetime.combine(day, time(), UTC) + timedelta(days=name == "until")
            asked[name] = start.isoformat()
    return shown, asked


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 2000 <= day.year < 2199 else None


def _csv(records: Iterable[AuditRecord]) -> Iterator[str]:
    yield _csv_line(_COLUMNS)
    for record in records:
        yield _csv_line(_values(record).values())


def _json(records: Iterable[AuditRecord]) -> Iterator[str]:
    before = "[\n"
    for record in records:
        values = _values(record) | {"before": record.before, "after": record.after}
        yield before + json.dumps(values)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _values(record: AuditRecord) -> dict[str, str | None]:
    return dict(
        zip(
            _COLUMNS,
            (
                record.public_id,
                record.at.isoformat(),
                record.action,
                record.actor_kind,
                record.actor_id,
                record.actor_label,
                record.actor_organization,
                record.target_type,
                record.target_id,
                record.address,
                record.request_id,
                None if record.before is None else json.dumps(record.before),
                None if record.after is None else json.dumps(record.after),
            ),
            strict=True,
        )
    )


def _csv_line(values: Iterable[str | None]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(
        f"'{value}" if value is not None and value.startswith(_FORMULA_PREFIXES) else value
        for value in values
    )
    return line.getvalue()


_EXPORT_FORMATS = {"csv": ("text/csv", _csv), "json": ("application/json", _json)}


@portal_page("/logs", "GET")
def logs(context: PortalContext) -> PageResponse:
    """List rejected requests, newest first; ``cause`` and ``request_id`` filter."""
    context.actor.require_for_own("logs:read")
    page, filters = _list(context)
    return context.render(
        "portal/logs/list.html",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=context.pager(page, _FAILED_REQUESTS_LISTING),
    )


@portal_page("/clients/<client_id>/logs", "GET")
def client_logs(context: PortalContext, client_id: str) -> PageResponse:
    """List the rejected requests of one client, as a tab of its page."""
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
        pager=context.pager(page, f"{_FAILED_REQUESTS_LISTING} {client.client_id}"),
    )


@portal_page("/logs/<failed_request_id>", "GET")
def log_entry(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Show what happened, the received and expected values, and how to fix it."""
    return _entry(context, get_failed_request(context.actor, failed_request_id))


@portal_page("/logs/<failed_request_id>/redirect-uri", "POST")
def add_redirect_uri(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Register the redirect URI or post-logout redirect URI that the client sent."""
    entry = get_failed_request(context.actor, failed_request_id)
    context.actor.require("clients:write", owner_id=entry.client_created_by_user_id)
    field = _UNREGISTERED.get(entry.cause)
    if field is None or entry.received is None:
        raise Conflict("This request didn't fail because of an unregistered redirect URI.")
    client = get_client(context.actor, entry.client_id)
    try:
        update_client(
            context.actor,
            entry.client_id,
            {field: [*(uri for uri in getattr(client, field) if uri != entry.received), entry.received]},
            expected_version=client.version,
        )
    except (InvalidInput, Conflict) as error:
        return _entry(context, entry, error)
    return context.done(f"/clients/{entry.client_id}/redirects", "redirect-added")


def _list(
    context: PortalContext, client_id: str | None = None
) -> tuple[Page[FailedRequestRecord], dict[str, str]]:
    values = {name: request.args.get(name, "").strip()[:64] for name in ("cause", "request_id")}
    filters = {name: value for name, value in values.items() if value}
    if filters.get("cause") not in CAUSES:
        filters.pop("cause", None)
    listing = _FAILED_REQUESTS_LISTING if client_id is None else f"{_FAILED_REQUESTS_LISTING} {client_id}"
    all_filters = filters if client_id is None else filters | {"client_id": client_id}
    after = context.position(listing)
    return list_failed_requests(context.actor, after=after, filters=all_filters), filters


def _entry(
    context: PortalContext, entry: FailedRequestRecord, error: DomainError | None = None
) -> BaseResponse:
    is_unregistered = entry.cause in _UNREGISTERED and entry.received is not None
    may_change = context.actor.has_permission("clients:write", owner_id=entry.client_created_by_user_id)
    return context.render(
        "portal/logs/entry.html",
        entry=entry,
        difference=closest_difference(entry.received, entry.expected)
        if entry.received and entry.cause in _URI_CAUSES
        else None,
        curl=_curl(entry, context.organization),
        may_add=is_unregistered and may_change,
        setting=_SETTINGS.get(entry.cause),
        error=error,
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
