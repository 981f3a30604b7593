"""Imports of users: upload a file, check it, import it, follow its progress."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import request

from app.api.endpoints import Endpoints, Query, boolean_query, show_page
from app.api.representations import Count, CreatedAt, Representation, Slug, Source
from app.operations.store.idempotency import IdempotentResult
from app.operations.users import import_records, import_uploads
from app.rules.shapes import OneOf, PublicId, SchemaOnly, described
from app.rules.users.import_files import FORMATS, MAX_FILE_BYTES
from app.rules.users.user_import import ON_EXISTING
from app.web.bearer import ApiContext, authenticate_again
from app.web.json_api import (
    UnsupportedMediaType,
    boolean_parameter,
    created,
    run_idempotently,
    sent_key,
)
from app.web.request_bodies import body_reader

endpoints = Endpoints("Users", "users")
_FORMAT_OF = {"text/csv": "csv", "application/json": "json", "application/x-ndjson": "ndjson"}
_STATUSES = ("checking", "checked", "running", "done", "cancelled", "failed")


class UserImport(Representation):
    """An import of users."""

    id: Annotated[str, PublicId("imp", "import"), Source("public_id")]
    organization_id: Annotated[Slug, Source("organization_slug")]
    name: Annotated[str, described("The name of the file.")]
    format: Annotated[str, OneOf(FORMATS), described("The format of the file.")]
    on_existing: Annotated[str, OneOf(ON_EXISTING), described("What happens to users who exist already.")]
    status: Annotated[
        str,
        OneOf(_STATUSES),
        described("`checking` and `running` are in progress. A dry run finishes as `checked`."),
    ]
    rows: Annotated[
        Count,
        Source("total"),
        described("The number of rows in the file. The header of a CSV file does not count."),
    ]
    processed: Annotated[
        Count, Source("done"), described("Rows that were imported or, in a dry run, checked.")
    ]
    created: Annotated[Count, described("Users who were created or, in a dry run, would be.")]
    updated: Annotated[Count, described("Users who were updated or, in a dry run, would be.")]
    skipped: Annotated[Count, described("Users who existed already.")]
    rejected: Annotated[Count, Source("refused"), described("Rows with errors.")]
    failure: Annotated[str | None, described("Why the import failed.")]
    created_at: CreatedAt
    created_by: Annotated[
        str, described("The email address or name of the user or client who sent the file.")
    ]
    finished_at: Annotated[
        datetime | None,
        Source("ended_at"),
        described("When it finished or was canceled. Null while it is in progress."),
    ]


class RowError(Representation):
    """An error in a row."""

    field: Annotated[str, described("Empty for an error of the row itself.")]
    code: Annotated[str, described("A stable code, such as `required`.")]
    message: Annotated[str, described("What is wrong, and what to do.")]


class RejectedRow(Representation):
    """A row that was not imported."""

    row: Annotated[
        int,
        Source("number"),
        SchemaOnly(minimum=1),
        described("The row number. The header of a CSV file is row 1."),
    ]
    fields: Annotated[dict[str, Any], described("The fields as they were sent.")]
    errors: Annotated[list[RowError], described("Everything that is wrong with the row.")]


@endpoints.page("/users/imports", returns=UserImport)
def list_user_imports(context: ApiContext) -> object:
    """List imports of users.

    The newest first.
    """
    return show_page(context, "imports", import_records.list_imports)


@endpoints.post(
    "/users/imports",
    query=(
        Query("name", {"type": "string", "maxLength": 200}, "The name of the file."),
        Query(
            "on_existing",
            {"type": "string", "enum": list(ON_EXISTING), "default": ON_EXISTING[0]},
            "What to do with users who exist already.",
        ),
        boolean_query("dry_run", "Check every row without importing it. `start` imports it within two days."),
    ),
    media={
        "text/csv": {"type": "string", "description": "The first row contains the column names."},
        "application/json": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "application/x-ndjson": {"type": "string", "description": "One JSON object per line."},
    },
    returns=UserImport,
    etag=False,
)
def import_users(context: ApiContext) -> object:
    """Import users.

    A file of up to 32 MiB and 250,000 rows, in UTF-8. An invalid file is rejected immediately. Otherwise, the import
    runs after the response, and rejected rows are listed. Rows contain `email`, `name`, `email_verified` (requires
    `settings:write`), `password_hash`, `roles` (roles other than the default ones require `admins:write`), `groups`,
    `status` and standard claims. Existing users keep their password and email address. A user needs a recent sign-in
    (RFC 9470), but not for a dry run.
    """
    name = context.parameters.get("name", "")
    on_existing = context.parameters.get("on_existing", ON_EXISTING[0])
    is_dry_run = boolean_parameter(context.parameters, "dry_run")
    import_uploads.validate_import_options(context.actor, name=name, on_existing=on_existing)
    # Before the file is read: an invalid key must not cost an upload.
    sent_key()
    file_format = _file_format()
    upload = import_uploads.receive_upload(
        context.actor,
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
        actor = authenticate_again(context).actor

        def work() -> IdempotentResult:
            record = import_uploads.confirm_upload(actor, upload, is_dry_run=is_dry_run)
            return created(UserImport.to_json(record), record.public_id)

        return run_idempotently(actor, body, work)
    finally:
        # A repeated request keeps the first file, and a rejected one keeps none.
        import_records.discard_upload(context.actor, upload.id)


@endpoints.get("/users/imports/<import_id>", returns=UserImport)
def get_user_import(context: ApiContext, import_id: str) -> object:
    """Get an import of users."""
    return import_records.get_import(context.actor, import_id)


@endpoints.delete("/users/imports/<import_id>", returns=UserImport, errors=(409,))
def cancel_user_import(context: ApiContext, import_id: str) -> object:
    """Cancel an import of users.

    Users who were already imported remain.
    """
    return import_records.cancel_import(context.actor, import_id)


@endpoints.post("/users/imports/<import_id>/start", status=200, returns=UserImport)
def start_user_import(context: ApiContext, import_id: str) -> object:
    """Start an import that was checked.

    The import must be `checked`. A user needs a recent sign-in (RFC 9470).
    """
    return import_uploads.start_import(context.actor, import_id)


@endpoints.page("/users/imports/<import_id>/rejected-rows", scope="users:write", returns=RejectedRow)
def list_rejected_rows(context: ApiContext, import_id: str) -> object:
    """List the rows that an import rejected.

    In the order of the file, stored for one week. They contain what was sent, including password hashes.
    """
    read = import_records.list_refused_rows
    return show_page(context, f"rejected rows {import_id}", read, import_id)


def _file_format() -> str:
    parameters = {name.lower(): value.lower() for name, value in request.mimetype_params.items()}
    file_format = _FORMAT_OF.get(request.mimetype)
    if file_format is None or parameters not in ({}, {"charset": "utf-8"}):
        raise UnsupportedMediaType(f"Send one of: {', '.join(_FORMAT_OF)}, in UTF-8.")
    return file_format
