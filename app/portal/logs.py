"""The audit log with its export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

from flask import json

from app.operations.audit.audit_events import (
    AuditRecord,
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
# The columns of the export, and the attributes of an event.
_COLUMNS = {
    "id": "public_id",
    "at": "at",
    "action": "action",
    "actor_type": "actor_kind",
    "actor_id": "actor_id",
    "actor": "actor_label",
    "actor_organization": "actor_organization",
    "target_type": "target_type",
    "target_id": "target_id",
    "address": "address",
    "request_id": "request_id",
    "before": "before",
    "after": "after",
}
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
    """Download all pages of the list as ``csv`` or ``json``."""
    if file_format not in _EXPORT_FORMATS:
        raise NotFound("This export format does not exist.")
    mimetype, lines = _EXPORT_FORMATS[file_format]
    records = export_audit_events(context.actor, filters=_filters()[1])
    return download(
        context.organization.id, lines(records), mimetype, f"{context.organization.slug}-audit.{file_format}"
    )


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


def _csv(records: Iterable[AuditRecord]) -> Iterator[str]:
    yield _csv_line(_COLUMNS)
    for record in records:
        values = _values(record)
        for name in ("before", "after"):
            values[name] = None if values[name] is None else json.dumps(values[name])
        yield _csv_line(values.values())


def _json(records: Iterable[AuditRecord]) -> Iterator[str]:
    before = "[\n"
    for record in records:
        yield before + json.dumps(_values(record))
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _values(record: AuditRecord) -> dict[str, Any]:
    values = {column: getattr(record, name) for column, name in _COLUMNS.items()}
    return values | {"at": record.at.isoformat()}


def _csv_line(values: Iterable[str | None]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(
        f"'{value}" if value is not None and value.startswith(_FORMULA_PREFIXES) else value
        for value in values
    )
    return line.getvalue()


_EXPORT_FORMATS = {"csv": ("text/csv", _csv), "json": ("application/json", _json)}
