"""Imports of users: upload a file, preview the result, start the import and follow its progress."""

from __future__ import annotations

from collections.abc import Callable

from flask_wtf.file import FileField, FileRequired
from werkzeug.wrappers import Response as BaseResponse
from wtforms import SelectChoice

from app.operations.store.rows import PageRequest
from app.operations.users import import_records, import_uploads
from app.operations.users.import_records import ImportRecord
from app.portal.context import PageResponse, PortalContext, allow_large_form, portal_page
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.users.import_files import MAX_FILE_BYTES, MAX_ROWS, format_of_name
from app.rules.users.user_import import CSV_FIELDS
from app.web.downloads import download
from app.web.forms import PageForm, radio_field
from app.web.languages import gettext, lazy_gettext, number

MAX_ERRORS_SHOWN = 20
REFRESH_SECONDS = 3
_STATUS_LABELS = {
    "checking": lazy_gettext("Checking"),
    "checked": lazy_gettext("Ready to import"),
    "running": lazy_gettext("Importing"),
    "done": lazy_gettext("Done"),
    "cancelled": lazy_gettext("Cancelled"),
    "failed": lazy_gettext("Stopped"),
}


class UserImportForm(PageForm):
    """Uploads a file of users."""

    file = FileField(
        lazy_gettext("File"),
        [FileRequired(lazy_gettext("Choose a file."))],
        render_kw={"accept": ".csv,.json,.jsonl,.ndjson,text/csv,application/json"},
    )
    on_existing = radio_field(
        lazy_gettext("Existing users"),
        choices=[
            SelectChoice(
                "skip",
                lazy_gettext("Skip"),
                {"help": lazy_gettext("Accounts with the same email address stay as they are.")},
            ),
            SelectChoice(
                "update",
                lazy_gettext("Update"),
                {
                    "help": lazy_gettext(
                        "Overwrite name, status, roles and profile. Password and email address don't change."
                    )
                },
            ),
        ],
        default="skip",
    )


allow_large_form(
    "import_upload", MAX_FILE_BYTES, lambda actor, slug: import_uploads.validate_import_options(actor)
)


@portal_page("/users/imports", "GET")
def imports(context: PortalContext, form: UserImportForm | None = None) -> PageResponse:
    """List the imports, with the upload form."""
    form = form or UserImportForm()
    page = import_records.list_imports(context.actor, context.page_request())
    form.file.description = gettext(
        "CSV, a JSON array or JSON lines, in UTF-8, up to %(size)s MiB and %(rows)s rows.",
        size=MAX_FILE_BYTES // 1024 // 1024,
        rows=number(MAX_ROWS),
    )
    return context.render(
        "portal/users/imports.html",
        form=form,
        page=page,
        columns=CSV_FIELDS,
        status_labels=_STATUS_LABELS,
    )


@portal_page("/users/imports", "POST")
def import_upload(context: PortalContext) -> PageResponse:
    """Check an uploaded file; no user is imported before an administrator has seen the preview."""
    context.actor.require("users:write")
    form = UserImportForm()
    if not form.validate_on_submit():
        return imports(context, form)
    file = form.file.data
    with form.show_errors(InvalidInput, Conflict):
        upload = import_uploads.receive_upload(
            context.actor,
            file.stream.read,
            file_format=format_of_name(file.filename),
            name=file.filename[:200],
            on_existing=form.on_existing.data or "skip",
        )
        begun = import_uploads.confirm_upload(context.actor, upload, is_dry_run=True)
        return context.done(f"/users/imports/{begun.public_id}", "import-received")
    return imports(context, form)


@portal_page("/users/imports/<import_id>", "GET")
def import_page(context: PortalContext, import_id: str, error: DomainError | None = None) -> BaseResponse:
    """Show the progress of an import, its result and the first rejected rows."""
    record = import_records.get_import(context.actor, import_id)
    rejected: tuple[import_records.RefusedRowRecord, ...] = ()
    if record.refused and context.actor.has_permission("users:write"):
        rejected = import_records.list_refused_rows(
            context.actor, import_id, PageRequest(MAX_ERRORS_SHOWN)
        ).items
    url = context.url(f"/users/imports/{record.public_id}")
    page = context.render(
        "portal/users/import.html",
        record=record,
        record_url=url,
        rejected=rejected,
        status_labels=_STATUS_LABELS,
        error=error,
    )
    if record.is_under_way:
        # Reload without scripts until the import is finished. A refused action has a path of its own, without a page.
        page.headers["refresh"] = f"{REFRESH_SECONDS}; url={url}"
    return page


@portal_page("/users/imports/<import_id>/start", "POST")
def import_start(context: PortalContext, import_id: str) -> PageResponse:
    """Import the users of a checked file."""
    return _change(
        context, import_id, lambda: import_uploads.start_import(context.actor, import_id), "import-started"
    )


@portal_page("/users/imports/<import_id>/cancel", "POST")
def import_cancel(context: PortalContext, import_id: str) -> PageResponse:
    """Stop an import; users that were imported already stay."""
    return _change(
        context, import_id, lambda: import_records.cancel_import(context.actor, import_id), "import-cancelled"
    )


@portal_page("/users/imports/<import_id>/rejected.csv", "GET")
def import_report(context: PortalContext, import_id: str) -> PageResponse:
    """Download the rejected rows with their errors, to be corrected and uploaded again."""
    lines = import_records.refusal_report(context.actor, import_id)
    return download(context.organization.id, lines, "text/csv", f"{import_id}-rejected.csv")


def _change(
    context: PortalContext, import_id: str, change: Callable[[], ImportRecord], notice_key: str
) -> PageResponse:
    try:
        change()
    except Conflict as error:
        return import_page(context, import_id, error)
    return context.done(f"/users/imports/{import_id}", notice_key)
