"""Imports of people: a file is checked, its first errors shown, then brought in and followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Response, request, stream_with_context
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.users import import_records, import_uploads
from app.operations.users import import_records as records
from app.operations.users import import_records as reports
from app.operations.users import import_uploads as uploads
from app.operations.users.import_records import ImportRecord
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, NotFound
from app.rules.users.user_import import CSV_FIELDS, MAX_FILE_BYTES, MAX_ROWS, format_of_name
from app.web.browser_session import actor_for
from app.web.forms import field_errors, text
from app.web.request_bodies import accept_large_form

FIRST_ERRORS = 20
RELOADED_EVERY_SECONDS = 3
_LISTING = "portal imports"
_UPLOAD = "portal.import_upload"


@portal.url_value_preprocessor
def let_files_in(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Accept the larger form of an import from users who may import.

    The form is read before any view runs, for its CSRF token, so the limit is set here.
    """
    if endpoint != _UPLOAD or request.method != "POST":
        return
    try:
        actor = actor_for(get_organization_by_slug((values or {})["organization"]))
        uploads.validate_import_options(actor)
    except (Forbidden, NotFound):
        return
    accept_large_form(MAX_FILE_BYTES)


@portal.get("/portal/<organization>/users/imports")
@visiting
def imports(visit: Visit) -> Answer:
    """The imports, and the form for another one."""
    return _list(visit)


@portal.post("/portal/<organization>/users/imports")
@visiting
def import_upload(visit: Visit) -> Answer:
    """The file is taken and checked; nobody comes in before somebody has seen what would happen."""
    visit.actor.require("users:write")
    file = request.files.get("file")
    if file is None or not file.filename:
        return _list(visit, code=400, errors={"file": "Choose a file."})
    try:
        upload = uploads.receive_upload(
            visit.actor,
            file.stream.read,
            file_format=format_of_name(file.filename),
            name=file.filename[:200],
            on_existing=text("on_existing") or "skip",
        )
        begun = uploads.confirm_upload(visit.actor, upload, is_dry_run=True)
    except (InvalidInput, Conflict) as refusal:
        return _list(visit, code=refusal.status, errors=field_errors(refusal))
    return visit.done(f"/users/imports/{begun.public_id}", "import-received")


@portal.get("/portal/<organization>/users/imports/<import_id>")
@visiting
def import_page(visit: Visit, import_id: str) -> Answer:
    """How far the import is, what it would do or did, and the first rows that it refused."""
    return _page(visit, import_id)


@portal.post("/portal/<organization>/users/imports/<import_id>/start")
@visiting
def import_start(visit: Visit, import_id: str) -> Answer:
    """What was checked comes in."""
    return _changed(
        visit, import_id, lambda: import_uploads.start_import(visit.actor, import_id), "import-started"
    )


@portal.post("/portal/<organization>/users/imports/<import_id>/cancel")
@visiting
def import_cancel(visit: Visit, import_id: str) -> Answer:
    """Nobody more comes in."""
    return _changed(
        visit, import_id, lambda: import_records.cancel_import(visit.actor, import_id), "import-cancelled"
    )


@portal.get("/portal/<organization>/users/imports/<import_id>/refused.csv")
@visiting
def import_report(visit: Visit, import_id: str) -> Answer:
    """The refused rows with the reasons, to be mended and sent again."""
    pieces = reports.refusal_report(visit.actor, import_id)
    report = Response(stream_with_context(pieces), mimetype="text/csv")
    report.headers["Content-Disposition"] = f'attachment; filename="{import_id}-refused.csv"'
    return report


def _changed(visit: Visit, import_id: str, act: Callable[[], ImportRecord], done: str) -> Answer:
    try:
        act()
    except Conflict as refusal:
        return _page(visit, import_id, code=409, refusal=refusal)
    return visit.done(f"/users/imports/{import_id}", done)


def _list(visit: Visit, *, code: int = 200, errors: dict[str, str] | None = None) -> Answer:
    page = records.list_imports(visit.actor, after=position(visit.organization.id, _LISTING))
    return visit.render(
        "portal/users/imports.html",
        code=code,
        page=page,
        errors=errors or {},
        on_existing=text("on_existing") or "skip",
        fields=CSV_FIELDS,
        most_rows=MAX_ROWS,
        most_mib=MAX_FILE_BYTES // 1024 // 1024,
        pager=pages_of(page, visit.organization.id, _LISTING),
    )


def _page(
    visit: Visit, import_id: str, *, code: int = 200, refusal: DomainError | None = None
) -> BaseResponse:
    record = records.get_import(visit.actor, import_id)
    refused: tuple[records.RefusedRowRecord, ...] = ()
    if record.refused and visit.actor.has_permission("users:write"):
        refused = records.list_refused_rows(visit.actor, import_id, limit=FIRST_ERRORS).items
    page = visit.render(
        "portal/users/import.html",
        code=code,
        record=record,
        record_url=visit.url(f"/users/imports/{import_id}"),
        refused=refused,
        errors={"": refusal.description} if refusal is not None else {},
    )
    if record.is_under_way:
        # Works without scripts, and stops by itself.
        page.headers["Refresh"] = str(RELOADED_EVERY_SECONDS)
    return page
