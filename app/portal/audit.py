"""The audit log: the list with its filters, one event with what it changed, and the export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta

from flask import Response, json, request, stream_with_context
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.audit_events import (
    AuditRecord,
    export_audit_events,
    find_target_names,
    get_audit_event,
    list_audit_events,
)
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import HAPPENINGS
from app.rules.errors import NotFound

_LISTING = "portal audit"
_EXACT = ("action", "actor", "target", "request_id")
_DAYS = ("since", "until")
_COLUMNS = (
    "id", "at", "action", "actor_type", "actor_id", "actor", "actor_organization", "target_type", "target_id",
    "address", "request_id", "before", "after",
)  # fmt: skip
# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@portal.get("/portal/<organization>/audit")
@visiting
def audit_log(visit: Visit) -> Answer:
    """What happened in the organization, the newest first; ``since`` and ``until`` are days, both included."""
    shown, filters = _filters()
    page = list_audit_events(visit.actor, after=position(visit.organization.id, _LISTING), filters=filters)
    return visit.render(
        "portal/audit/list.html",
        page=page,
        names=find_target_names(visit.actor, page.items),
        filters=shown,
        words=HAPPENINGS,
        pager=pages_of(page, visit.organization.id, _LISTING),
    )


@portal.get("/portal/<organization>/audit/<event_id>")
@visiting
def audit_event(visit: Visit, event_id: str) -> Answer:
    """Who did it, when and from where, and each changed field."""
    event = get_audit_event(visit.actor, event_id)
    named = find_target_names(visit.actor, [event]).get(event.id)
    return visit.render("portal/audit/event.html", event=event, named=named, words=HAPPENINGS)


@portal.get("/portal/<organization>/audit/export/<form>")
@visiting
def audit_export(visit: Visit, form: str) -> Answer:
    """What the list shows, all pages of it, as a file: ``csv`` or ``json``."""
    if form not in _FORMS:
        raise NotFound("There is no such form of export.")
    mimetype, lines = _FORMS[form]
    records = export_audit_events(visit.actor, filters=_filters()[1])
    response: BaseResponse = Response(stream_with_context(lines(records)), mimetype=mimetype)
    response.headers["Cache-Control"] = "no-store"
    name = f"{visit.organization.slug}-audit.{form}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _filters() -> tuple[dict[str, str], dict[str, str]]:
    """(what the form shows, what the operation is asked): a day that is none is left out."""
    sent = {name: request.args.get(name, "").strip()[:64] for name in (*_EXACT, *_DAYS)}
    shown = {name: sent[name] for name in _EXACT if sent[name]}
    asked = dict(shown)
    for name in _DAYS:
        day = _day(sent[name])
        if day is not None:
            shown[name] = sent[name]
            begins = datetime.combine(day, time(), UTC) + timedelta(days=name == "until")
            asked[name] = begins.isoformat()
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
        f"'{value}" if value is not None and value.startswith(_FORMULA) else value for value in values
    )
    return line.getvalue()


_FORMS = {"csv": ("text/csv", _csv), "json": ("application/json", _json)}
