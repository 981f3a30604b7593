"""Uploading import files: a file is validated as a whole and stored in sealed parts until it is imported."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import exists, insert, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.user import (
    CHECKED,
    CHECKING,
    RUNNING,
    UNFINISHED,
    UPLOADING,
    UserImport,
    UserImportPart,
)
from app.operations.directory.lookups import find_client_by_id, get_organization_by_id, get_user_permissions
from app.operations.directory.users import get_user
from app.operations.sign_in import sessions
from app.operations.sign_in.actor_access import permissions_of_client
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import clock, keyring
from app.operations.store.rows import count_where
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.operations.tokens import tokens
from app.operations.users import import_records
from app.operations.users.import_records import (
    SENT_BY,
    ImportRecord,
    get_import_row,
    import_record,
    record_import_event,
    remove_refusals,
    seal_context,
    sender_of,
)
from app.rules.actor import Actor
from app.rules.directory.permissions import intersect_permissions
from app.rules.errors import Conflict, Forbidden, NotFound
from app.rules.fields import ValidationErrors, text_problem
from app.rules.identifiers import new_id
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.import_files import FORMATS, Row, UnreadableFile, read_rows
from app.rules.users.user_import import ON_EXISTING

import_ready = threading.Event()
"""Set when this process has committed an import that has to be processed."""
PART_ROWS = 250
PART_CHARACTERS = 1 << 20
"""A part is stored in one value, and servers limit the size of a statement."""
PIECE_BYTES = 64 * 1024
MAX_UNFINISHED_IMPORTS = 10
"""Imports of an organization that wait or run."""
UPLOAD_LIFETIME = timedelta(hours=1)
PART_RETENTION = timedelta(days=2)
IMPORT_RETENTION = timedelta(days=30)
Reader = Callable[[int], bytes]


class Upload(Struct, frozen=True):
    """An uploaded file. It is deleted within an hour unless it is confirmed."""

    id: UUID
    digest: str
    rows: int


def serialize_actor(actor: Actor) -> dict[str, Any]:
    """Return the actor as a JSON document to store with the import."""
    return {
        "kind": actor.kind,
        "home": actor.home_organization_id,
        "is_root": actor.is_root,
        "user_id": str(actor.user_id) if actor.user_id else None,
        "client_id": str(actor.client_id) if actor.client_id else None,
        "session_id": str(actor.session_id) if actor.session_id else None,
        "token_id": str(actor.token_id) if actor.token_id else None,
        "token_expires_at": actor.token_expires_at.isoformat() if actor.token_expires_at else None,
        "permissions": sorted(actor.permissions),
        "label": actor.label,
        "address": actor.ip_address,
        "request_id": actor.request_id,
    }


def load_importer(row: UserImport) -> Actor:
    """Return the import's actor with the permissions that they had at its start and still have.

    Raises Forbidden if the user or client was deleted or may no longer manage users, or if the session or
    token that started the import was revoked: revoking a stolen one also stops its imports.
    """
    document = row.importer
    _require_active_credential(document)
    permissions = frozenset(document["permissions"])
    user_id, client_id = (
        UUID(document[name]) if document[name] else None for name in ("user_id", "client_id")
    )
    if document["kind"] != "system":
        permissions = intersect_permissions(
            permissions, _current_permissions(row.organization_id, document["home"], user_id, client_id)
        )
    actor = Actor(
        document["kind"],
        row.organization_id,
        document["home"],
        permissions=permissions,
        is_root=document["is_root"],
        user_id=user_id,
        client_id=client_id,
        label=document["label"],
        ip_address=document["address"],
        request_id=document["request_id"],
    )
    actor.require("users:write")
    return actor


@transaction
def start_import(actor: Actor, import_id: str) -> ImportRecord:
    """Start the import of a file that a dry run has checked, with the permissions that both it and the actor have.

    What the dry run rejected for want of a permission stays rejected, whoever starts the import: they cannot see the
    file, only what was rejected. Raises Forbidden, NotFound, Conflict unless it is checked and its rows are still
    stored, and FreshSignInRequired if the user signed in too long ago, because an import assigns roles. Audit:
    ``user_import.started``.
    """
    actor.require("users:write")
    require_fresh_user_sign_in(actor)
    row = get_import_row(actor, import_id)
    changed = count_changed(
        update(UserImport)
        .where(has_key(UserImport, row.organization_id, row.id), UserImport.status == CHECKED)
        .values(
            status=RUNNING,
            # It runs in the background, even if the command line checked it.
            is_foreground=False,
            importer=serialize_actor(_within_dry_run(actor, row)) | {SENT_BY: sender_of(row)},
            worked_at=clock.now(),
            ended_at=None,
            **dict.fromkeys(("position", "created", "updated", "skipped", "refused"), 0),
        )
    )
    if not changed:
        raise Conflict(
            "Only an import that was checked and not started yet can be started.", code="not_checked"
        )
    _keep_parts(row)
    remove_refusals(row.organization_id, row.id)
    record_import_event(actor, "user_import.started", row.id, _described(row))
    on_commit(import_ready.set)
    db.session.expire_all()
    return import_record(get_import_row(actor, import_id))


@read
def find_interrupted(actor: Actor, digest: str, *, is_dry_run: bool) -> ImportRecord | None:
    """Find the import, or the dry run, of the file with this SHA-256 that the command line can go on with.

    A dry run must not go on with an import, nor an import with a dry run, and neither without the uploaded rows. Raises
    Forbidden.
    """
    actor.require("users:write")
    has_next_part = exists().where(
        UserImportPart.organization_id == UserImport.organization_id,
        UserImportPart.import_id == UserImport.id,
        UserImportPart.number == UserImport.position,
        UserImportPart.expires_at > clock.now(),
    )
    row = db.session.scalar(
        select(UserImport)
        .where(
            UserImport.organization_id == actor.organization_id,
            UserImport.status == (CHECKING if is_dry_run else RUNNING),
            UserImport.is_foreground,
            UserImport.digest == bytes.fromhex(digest),
            has_next_part,
        )
        .order_by(UserImport.id.desc())
        .limit(1)
    )
    return import_record(row) if row is not None else None


def receive_upload(
    actor: Actor,
    read: Reader,
    *,
    file_format: str,
    name: str = "",
    on_existing: str = "skip",
    is_foreground: bool = False,
) -> Upload:
    """Store an uploaded file, sealed, in parts of PART_ROWS rows.

    ``read`` returns at most the given number of bytes, and none at the end. Raises Forbidden, InvalidInput for the
    options, Conflict when too many imports wait, UnreadableFile, and stores nothing then. Call it outside of a
    transaction, because the bytes may arrive slowly.
    """
    actor.require("users:write")
    validate_import_options(actor, name=name, file_format=file_format, on_existing=on_existing)
    digest = hashlib.sha256()
    import_id = _create_import(actor, name, file_format, on_existing, is_foreground)
    try:
        rows = parts = 0
        for part in _parts(read_rows(_equal_pieces(read, digest.update), file_format)):
            _seal_part(actor.organization_id, import_id, parts, f"[{','.join(part)}]".encode())
            rows, parts = rows + len(part), parts + 1
        if not rows:
            raise UnreadableFile("The file contains no users.", field="file", code=UnreadableFile.code)
        _complete_upload(actor.organization_id, import_id, digest.digest(), rows, parts)
    except BaseException:
        import_records.discard_upload(actor, import_id)
        raise
    return Upload(import_id, digest.hexdigest(), rows)


@transaction
def confirm_upload(actor: Actor, upload: Upload, *, is_dry_run: bool) -> ImportRecord:
    """Start the import of an upload, or its dry run, which reports what an import would do.

    Raises Forbidden, Conflict when it has started, and FreshSignInRequired as ``start_import``. Audit:
    ``user_import.started`` or ``user_import.checked``.
    """
    actor.require("users:write")
    if not is_dry_run:
        require_fresh_user_sign_in(actor)
    now = clock.now()
    changed = count_changed(
        update(UserImport)
        .where(
            has_key(UserImport, actor.organization_id, upload.id),
            UserImport.status == UPLOADING,
            UserImport.total > 0,
        )
        .values(status=CHECKING if is_dry_run else RUNNING, worked_at=now, expires_at=now + IMPORT_RETENTION)
    )
    if not changed:
        raise _upload_ended()
    db.session.expire_all()
    row = db.session.get_one(UserImport, (actor.organization_id, upload.id))
    action = "user_import.checked" if is_dry_run else "user_import.started"
    record_import_event(actor, action, upload.id, {**_described(row), "digest": upload.digest})
    on_commit(import_ready.set)
    return import_record(row)


def _keep_parts(row: UserImport) -> None:
    """Keep the uploaded rows for the import. Raises Conflict unless all of them are still stored."""
    now = clock.now()
    kept = count_changed(
        update(UserImportPart)
        .where(
            UserImportPart.organization_id == row.organization_id,
            UserImportPart.import_id == row.id,
            UserImportPart.expires_at > now,
        )
        .values(expires_at=now + PART_RETENTION)
    )
    if kept != row.parts:
        raise _upload_ended()


def _upload_ended() -> Conflict:
    return Conflict("This upload has expired. Upload the file again.", code="upload_ended")


def validate_import_options(
    actor: Actor, *, name: str = "", file_format: str = FORMATS[0], on_existing: str = ON_EXISTING[0]
) -> None:
    """Validate the options of an import. Raises Forbidden, InvalidInput naming each wrong one."""
    actor.require("users:write")
    errors = ValidationErrors()
    errors.add_choice("format", file_format, FORMATS)
    errors.add_choice("on_existing", on_existing, ON_EXISTING)
    errors.add_problem("name", text_problem(name, max_length=200, min_length=0))
    errors.raise_if_any()


def _within_dry_run(actor: Actor, row: UserImport) -> Actor:
    """Return the actor with no more permissions than the dry run had. That of the command line had all."""
    checker = row.importer
    if checker["kind"] == "system":
        return actor
    both = intersect_permissions(actor.permissions, frozenset(checker["permissions"]))
    return replace(actor, permissions=both)


def _described(row: UserImport) -> dict[str, Any]:
    return {"name": row.name, "rows": row.total, "on_existing": row.on_existing}


def _require_active_credential(document: Mapping[str, Any]) -> None:
    # Imports that were started by an earlier release store neither.
    session_id, token_id, expires_at = (
        document.get(name) for name in ("session_id", "token_id", "token_expires_at")
    )
    try:
        if session_id and sessions.is_session_revoked(
            get_organization_by_id(document["home"]), UUID(session_id)
        ):
            raise _import_stopped("The session that started this import has ended.")
    except NotFound:
        raise _import_stopped("The session that started this import has ended.") from None
    # A token that expired during the import was not revoked.
    is_unexpired = expires_at is not None and datetime.fromisoformat(expires_at) > clock.now()
    if token_id and is_unexpired and tokens.is_revoked(document["home"], UUID(token_id)):
        raise _import_stopped("The access token that started this import was revoked.")


def _import_stopped(reason: str) -> Forbidden:
    return Forbidden(
        lazy_gettext(
            "%(reason)s Users already imported stay. Upload the file again to continue.", reason=reason
        ),
        permission="users:write",
    )


def _current_permissions(
    organization_id: str, home_organization_id: str, user_id: UUID | None, client_id: UUID | None
) -> frozenset[str]:
    permissions: frozenset[str] | None = None
    try:
        organization = get_organization_by_id(organization_id)
        if user_id is not None and get_user(home_organization_id, user_id).is_active:
            permissions = get_user_permissions(organization, home_organization_id, user_id)
        if client_id is not None:
            client = find_client_by_id(home_organization_id, client_id, fresh=True)
            scopes = frozenset(client.document["scopes"] if client and client.is_active else ())
            permissions = (
                permissions_of_client(organization, client)
                if user_id is None
                else intersect_permissions(scopes, permissions or frozenset())
            )
    except NotFound:
        permissions = None
    if permissions is None:
        raise Forbidden(
            "The user or client that started this import no longer has permission for it.",
            permission="users:write",
        )
    return permissions


def _equal_pieces(read: Reader, on_read: Callable[[bytes], None]) -> Iterator[bytes]:
    """Return the bytes in pieces of equal size."""
    pending = b""
    while True:
        more = read(PIECE_BYTES - len(pending))
        on_read(more)
        pending += more
        if pending and (not more or len(pending) >= PIECE_BYTES):
            yield pending
            pending = b""
        if not more:
            return


def _parts(rows: Iterator[Row]) -> Iterator[list[str]]:
    """Group rows as JSON into parts, smaller where rows are long, and mark rows that repeat an earlier email."""
    first: dict[bytes, int] = {}
    part: list[str] = []
    size = 0
    for row in rows:
        email = row.fields.get("email")
        canonical = canonical_email(email) if isinstance(email, str) else None
        first_number = row.number
        if canonical is not None:
            first_number = first.setdefault(
                hashlib.blake2b(canonical.encode(), digest_size=12).digest(), row.number
            )
        problem = row.problem or (
            f"Row {first_number} has the same email." if first_number != row.number else None
        )
        part.append(json.dumps({"number": row.number, "fields": dict(row.fields), "problem": problem}))
        size += len(part[-1])
        if len(part) == PART_ROWS or size >= PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


@transaction
def _create_import(actor: Actor, name: str, file_format: str, on_existing: str, is_foreground: bool) -> UUID:
    unfinished = count_where(
        UserImport.organization_id == actor.organization_id,
        UserImport.status.in_(UNFINISHED),
        UserImport.expires_at > clock.now(),
        UserImport.worked_at > clock.now() - PART_RETENTION,
    )
    if unfinished >= MAX_UNFINISHED_IMPORTS:
        message = (
            f"{MAX_UNFINISHED_IMPORTS} imports are already waiting or running. "
            "Wait for one to finish, or cancel one."
        )
        raise Conflict(message, code="too_many_imports")
    now = clock.now()
    row_id = new_id()
    counts = dict.fromkeys(("total", "parts", "position", "created", "updated", "skipped", "refused"), 0)
    db.session.execute(
        insert(UserImport).values(
            organization_id=actor.organization_id,
            id=row_id,
            name=name,
            format=file_format,
            digest=bytes(32),
            on_existing=on_existing,
            status=UPLOADING,
            is_foreground=is_foreground,
            importer=serialize_actor(actor),
            created_at=now,
            worked_at=now,
            expires_at=now + UPLOAD_LIFETIME,
            **counts,
        )
    )
    return row_id


def _seal_part(organization_id: str, import_id: UUID, number: int, rows: bytes) -> None:
    sealed = keyring.seal(organization_id, rows, seal_context("part", import_id, number))
    _store_part(organization_id, import_id, number, sealed)


@transaction
def _store_part(organization_id: str, import_id: UUID, number: int, sealed: bytes) -> None:
    now = clock.now()
    db.session.execute(
        insert(UserImportPart).values(
            organization_id=organization_id,
            import_id=import_id,
            number=number,
            sealed_rows=sealed,
            expires_at=now + PART_RETENTION,
        )
    )


@transaction
def _complete_upload(organization_id: str, import_id: UUID, digest: bytes, rows: int, parts: int) -> None:
    count_changed(
        update(UserImport)
        .where(has_key(UserImport, organization_id, import_id))
        .values(digest=digest, total=rows, parts=parts)
    )
