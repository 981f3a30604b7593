"""Imports of people: a file is sent, checked or brought in, followed to its end."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from app.api import representations
from app.api.blueprint import api
from app.api.lists import listed
from app.operations.store.idempotency import IdempotentResult
from app.operations.users import import_records, import_uploads
from app.operations.users import import_records as records
from app.operations.users import import_uploads as uploads
from app.operations.users.import_records import ImportRecord, RefusedRowRecord
from app.rules.users.user_import import MAX_FILE_BYTES, ON_EXISTING
from app.web.bearer import Call, asked_again, management
from app.web.idempotency import created, once, sent_key
from app.web.json_api import UnsupportedMediaType, envelope
from app.web.pagination import PARAMETERS
from app.web.parameters import flag
from app.web.uploads import body_reader, place_to_upload

FORMATS = {"text/csv": "csv", "application/json": "json", "application/x-ndjson": "ndjson"}


def user_import(record: ImportRecord) -> dict[str, Any]:
    """An import and how far it is."""
    return {
        "id": record.public_id,
        "organization_id": record.organization_slug,
        "name": record.name,
        "format": record.format,
        "on_existing": record.on_existing,
        "status": record.status,
        "rows": record.total,
        "done": record.done,
        "created": record.created,
        "updated": record.updated,
        "skipped": record.skipped,
        "refused": record.refused,
        "failure": record.failure,
        "created_at": representations.time(record.created_at),
        "created_by": record.created_by,
        "ended_at": representations.time(record.ended_at),
    }


def refused_row(row: RefusedRowRecord) -> dict[str, Any]:
    """A row that was not brought in, as it was sent."""
    return {
        "row": row.number,
        "fields": dict(row.fields),
        "errors": [
            {"field": error.field, "code": error.code, "message": error.message} for error in row.errors
        ],
    }


@api.get("/users/imports")
@management(*PARAMETERS)
def list_user_imports(call: Call) -> Response:
    """The imports of the organization, the newest first."""
    return listed(call, "imports", records.list_imports, show=user_import)


@api.post("/users/imports")
@management("name", "on_existing", "dry_run")
def import_users(call: Call) -> Response:
    """The file is taken; its people come in after the answer."""
    name, on_existing = call.parameters.get("name", ""), call.parameters.get("on_existing", ON_EXISTING[0])
    is_dry_run = flag(call.parameters, "dry_run")
    uploads.validate_import_options(call.actor, name=name, on_existing=on_existing)
    # Asked before the file is read: a key that can be none must not cost an upload.
    sent_key()
    file_format = _format()
    with place_to_upload(call.actor.organization_id):
        upload = uploads.receive_upload(
            call.actor,
            body_reader(MAX_FILE_BYTES),
            file_format=file_format,
            name=name,
            on_existing=on_existing,
        )

    body = {
        "file": upload.digest,
        "format": file_format,
        "name": name,
        "on_existing": on_existing,
        "dry_run": is_dry_run,
    }
    try:
        actor = asked_again(call).actor

        def work() -> IdempotentResult:
            record = uploads.confirm_upload(actor, upload, is_dry_run=is_dry_run)
            return created(user_import(record), record.public_id)

        return once(actor, body, work)
    finally:
        # Of a repeated request the first file counts, of a refused one none.
        import_records.discard_upload(call.actor, upload.id)


@api.get("/users/imports/<import_id>")
@management()
def get_user_import(call: Call, import_id: str) -> Response:
    """One import."""
    return envelope(user_import(records.get_import(call.actor, import_id)))


@api.delete("/users/imports/<import_id>")
@management()
def cancel_user_import(call: Call, import_id: str) -> Response:
    """Nothing more is brought in."""
    return envelope(user_import(import_records.cancel_import(call.actor, import_id)))


@api.post("/users/imports/<import_id>/start")
@management()
def start_user_import(call: Call, import_id: str) -> Response:
    """What a dry run has checked comes in."""
    body: dict[str, Any] = {}
    return once(
        call.actor,
        body,
        lambda: IdempotentResult(
            200, user_import(import_uploads.start_import(call.actor, import_id)), {}, {}
        ),
    )


@api.get("/users/imports/<import_id>/refusals")
@management(*PARAMETERS)
def list_refused_rows(call: Call, import_id: str) -> Response:
    """The rows that were not brought in, and why."""
    return listed(call, f"refusals {import_id}", records.list_refused_rows, import_id, show=refused_row)


def _format() -> str:
    parameters = {name.lower(): value.lower() for name, value in request.mimetype_params.items()}
    file_format = FORMATS.get(request.mimetype)
    if file_format is None or parameters not in ({}, {"charset": "utf-8"}):
        raise UnsupportedMediaType(f"Send one of: {', '.join(FORMATS)}, in UTF-8.")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body without a Content-Encoding.")
    return file_format
