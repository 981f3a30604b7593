"""OpenAPI: imports of people."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    count,
    created,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    success,
    text,
)
from app.rules.users.user_import import FORMATS, ON_EXISTING

_TAG = "Users"
_STATUSES = ("checking", "checked", "running", "done", "cancelled", "failed")

SCHEMAS: Schema = {
    "UserImport": closed(
        {
            "id": public_id("imp"),
            "organization_id": SLUG,
            "name": text("Of the file, as its sender calls it."),
            "format": text(enum=list(FORMATS)),
            "on_existing": text(enum=list(ON_EXISTING)),
            "status": text(
                "`checking` and `running` are under way; a dry run ends as `checked`.", enum=list(_STATUSES)
            ),
            "rows": count(),
            "done": count("Rows that are done; of a dry run, checked."),
            "created": count(),
            "updated": count(),
            "skipped": count("Who was there already."),
            "refused": count(),
            "failure": nullable(text("Why it stopped before its end.")),
            "created_at": moment(),
            "created_by": text(),
            "ended_at": nullable(moment()),
        }
    ),
    "RefusedRow": closed(
        {
            "row": {"type": "integer", "minimum": 1, "description": "Its number; the header of a CSV is 1."},
            "fields": {"type": "object", "description": "As they were sent."},
            "errors": array(
                closed({"field": text("Empty for the row itself."), "code": text(), "message": text()})
            ),
        }
    ),
}

_FILE: Schema = {
    "required": True,
    "content": {
        "text/csv": {"schema": text("The first row names the columns.")},
        "application/json": {"schema": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
        "application/x-ndjson": {"schema": text("A JSON object a line.")},
    },
}
_ONE = success(ref("UserImport"))


def _import_users() -> Schema:
    made = operation(
        "importUsers",
        "Import users",
        tag=_TAG,
        scope="users:write",
        description="A file of up to 32 MiB and 250,000 rows, in UTF-8. What is wrong with the file as a whole is "
        "refused at once; the people come in after the answer, and each row that is refused is listed. Rows say "
        "`email`, `name`, `email_verified` (needs `settings:write` too), `password_hash`, `roles` (others than the "
        "default ones need `admins:write` too), `status` and standard claims; an existing user keeps password "
        "and address.",
        parameters=("IdempotencyKey",),
        query=(
            query_parameter("name", text(maxLength=200), "What the file is called."),
            query_parameter(
                "on_existing",
                text(enum=list(ON_EXISTING), default="skip"),
                "What becomes of who has the address already.",
            ),
            query_parameter(
                "dry_run",
                {"type": "boolean", "default": False},
                "Every row is checked and nothing changes; `start` brings in what was checked, within two days.",
            ),
        ),
        answers={
            "201": answer("The import, which has begun.", created(ref("UserImport")), headers=("Location",))
        },
        extra=("408", "413", "415"),
    )
    return made | {"requestBody": _FILE}


PATHS: Schema = {
    "/users/imports": path_item(
        ("Acting",),
        get=operation(
            "listUserImports",
            "List imports of users",
            tag=_TAG,
            scope="users:read",
            parameters=("Limit", "Cursor"),
            answers=listed("A page of imports, the newest first.", "UserImport"),
        ),
        post=_import_users(),
    ),
    "/users/imports/{importId}": path_item(
        ("ImportId", "Acting"),
        get=operation(
            "getUserImport",
            "Show an import of users",
            tag=_TAG,
            scope="users:read",
            answers={"200": answer("The import, and how far it is.", _ONE)},
        ),
        delete=operation(
            "cancelUserImport",
            "Cancel an import of users",
            tag=_TAG,
            scope="users:write",
            description="Who was brought in stays.",
            answers={"200": answer("The import.", _ONE)},
            extra=("409",),
        ),
    ),
    "/users/imports/{importId}/start": path_item(
        ("ImportId", "Acting"),
        post=operation(
            "startUserImport",
            "Bring in what was checked",
            tag=_TAG,
            scope="users:write",
            description="Of an import that is `checked`. A body is not read.",
            parameters=("IdempotencyKey",),
            answers={"200": answer("The import, which has begun.", created(ref("UserImport")))},
        ),
    ),
    "/users/imports/{importId}/refusals": path_item(
        ("ImportId", "Acting"),
        get=operation(
            "listRefusedRows",
            "List the rows that an import refused",
            tag=_TAG,
            scope="users:write",
            description="In the order of the file, kept for a week. They hold what was sent, hashes of passwords too.",
            parameters=("Limit", "Cursor"),
            answers=listed("A page of rows.", "RefusedRow"),
        ),
    ),
}
