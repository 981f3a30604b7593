"""The audit log with its export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

from flask import json

from app.operations.audit.audit_events import (
    event_document,
    export_audit_events,
    find_target_names,
    get_audit_event,
    list_audit_events,
)
from app.portal.context import PageResponse, PortalContext, portal_page, sent_filters
from app.portal.labels import AUDIT_ACTIONS, TARGET_TYPES, WEBHOOK_DISABLED_REASONS
from app.portal.setting_texts import SETTING_LABELS
from app.rules.errors import NotFound
from app.web.downloads import download
from app.web.languages import lazy_gettext, page_time_zone

_EXACT = ("action", "actor", "target", "ip_address", "request_id")
_DAYS = ("since", "until")
# The columns of the CSV export: the fields of an event, and those of its actor and target.
_COLUMNS = (
    *("id", "organization_id", "occurred_at", "action"),
    *("actor_type", "actor_id", "actor_label", "actor_organization_id", "target_type", "target_id"),
    *("before", "after", "ip_address", "request_id"),
)
# The labels of the fields and of the values that an action changes.
_LABELS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "settings.updated": (SETTING_LABELS, {}),
    "webhook.disabled": ({"because": lazy_gettext("Reason")}, WEBHOOK_DISABLED_REASONS),
}
# A spreadsheet treats text that begins like this as a formula.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")


@portal_page("/audit", "GET")
def audit_log(context: PortalContext) -> PageResponse:
    """List the events, newest first; ``since`` and ``until`` are days of the reader, both inclusive."""
    shown, filters = _filters()
    page = list_audit_events(context.actor, context.page_request(), filters=filters)
    return context.render(
        "portal/audit/list.html",
        page=page,
        names=find_target_names(context.actor, page.items),
        filters=shown,
        zone=str(page_time_zone()),
        actions=AUDIT_ACTIONS,
        setting_labels=SETTING_LABELS,
    )


@portal_page("/audit/<event_id>", "GET")
def audit_event(context: PortalContext, event_id: str) -> PageResponse:
    """Show who did what, when and from where, and each changed field."""
    event = get_audit_event(context.actor, event_id)
    target = find_target_names(context.actor, [event]).get(event.id)
    field_labels, value_labels = _LABELS.get(event.action, ({}, {}))
    return context.render(
        "portal/audit/event.html",
        event=event,
        target=target,
        actions=AUDIT_ACTIONS,
        target_types=TARGET_TYPES,
        field_labels=field_labels,
        value_labels=value_labels,
    )


@portal_page("/audit/export/<file_format>", "GET")
def audit_export(context: PortalContext, file_format: str) -> PageResponse:
    """Download the events of the list, the oldest first: as ``csv``, or as ``ndjson`` like the API."""
    if file_format not in _EXPORT_FORMATS:
        raise NotFound("This export format does not exist.")
    mimetype, to_lines = _EXPORT_FORMATS[file_format]
    slug = context.organization.slug
    records = export_audit_events(context.actor, filters=_filters()[1])
    lines = to_lines(event_document(record, slug) for record in records)
    return download(context.organization.id, lines, mimetype, f"{slug}-audit-events.{file_format}")


def _filters() -> tuple[dict[str, str], dict[str, str]]:
    """Return the filters as the form shows them and as the operation takes them; invalid days are ignored."""
    sent = sent_filters((*_EXACT, *_DAYS))
    shown = {name: sent[name] for name in _EXACT if sent[name]}
    asked = dict(shown)
    for name in _DAYS:
        day = _day(sent[name])
        if day is not None:
            shown[name] = sent[name]
            start = datetime.combine(day, time(), page_time_zone()) + timedelta(days=name == "until")
            asked[name] = start.isoformat()
    return shown, asked


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 2000 <= day.year < 2199 else None


def _csv(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield _csv_line(_COLUMNS)
    for event in events:
        cells = _cells(event)
        yield _csv_line(cells[column] for column in _COLUMNS)


def _cells(event: dict[str, Any]) -> dict[str, str | None]:
    cells = dict(event)
    for name in ("actor", "target"):
        cells |= {f"{name}_{part}": value for part, value in event[name].items()}
    for name in ("before", "after"):
        cells[name] = None if event[name] is None else json.dumps(event[name])
    return cells


def _json_lines(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(event) + "\n" for event in events)


def _csv_line(values: Iterable[str | None]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(
        f"'{value}" if value is not None and value.startswith(_FORMULA_PREFIXES) else value
        for value in values
    )
    return line.getvalue()


_EXPORT_FORMATS = {"csv": ("text/csv", _csv), "ndjson": ("application/x-ndjson", _json_lines)}
