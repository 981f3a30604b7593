"""Uploads: the file is read once, checked as a whole, and kept in sealed parts until its people are brought in."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select, update

from app.extensions import db
from app.models.user import (
    CHECKED,
    CHECKING,
    RUNNING,
    UNDER_WAY,
    UNFINISHED,
    UPLOADING,
    UserImport,
    UserImportPart,
)
from app.operations.directory.lookups import find_client_by_id, get_organization_by_id
from app.operations.directory.permissions import get_user_permissions
from app.operations.directory.users import get_user
from app.operations.sign_in import sessions
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.operations.tokens import tokens
from app.operations.users import import_records
from app.operations.users.import_records import (
    ImportRecord,
    get_import_row,
    import_record,
    remove_refusals,
    seal_context,
)
from app.rules.actor import Actor
from app.rules.directory.permissions import intersect_permissions
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound
from app.rules.fields import text_problem
from app.rules.identifiers import new_id, public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.user_import import FORMATS, ON_EXISTING, Row, UnreadableFile, read_rows

import_ready = threading.Event()
"""Set when this process has committed an import that has to be worked on."""


def serialize_actor(actor: Actor) -> dict[str, Any]:
    """The actor, to be kept."""
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
    """Who the import acts for, with what both they might do when it began and may do now.

    Raises Forbidden when they are gone, or may not administer users any more, or when the sign-in or the token that
    began it was ended: whoever ends a stolen one ends what it set going.
    """
    kept = row.importer
    _require_standing(kept)
    held = frozenset(kept["permissions"])
    user_id, client_id = (UUID(kept[name]) if kept[name] else None for name in ("user_id", "client_id"))
    if kept["kind"] != "system":
        held = intersect_permissions(held, _rights_now(row.organization_id, kept["home"], user_id, client_id))
    actor = Actor(
        kept["kind"],
        row.organization_id,
        kept["home"],
        permissions=held,
        is_root=kept["is_root"],
        user_id=user_id,
        client_id=client_id,
        label=kept["label"],
        ip_address=kept["address"],
        request_id=kept["request_id"],
    )
    actor.require("users:write")
    return actor


def _require_standing(kept: Mapping[str, Any]) -> None:
    # Imports that a release before began kept neither.
    session_id, token_id, until = (kept.get(name) for name in ("session_id", "token_id", "token_expires_at"))
    try:
        if session_id and sessions.is_session_revoked(get_organization_by_id(kept["home"]), UUID(session_id)):
            raise _over("The sign-in that began this import has ended.")
    except NotFound:
        raise _over("The sign-in that began this import has ended.") from None
    # A token that grew old while the import ran was ended by nobody.
    is_young = until is not None and datetime.fromisoformat(until) > clock.now()
    if token_id and is_young and tokens.has_been_ended(kept["home"], UUID(token_id)):
        raise _over("The access token that began this import was revoked.")


def _over(why: str) -> Forbidden:
    return Forbidden(f"{why} Who came in stays; send the file again to go on.", permission="users:write")


def _rights_now(
    organization_id: str, home: str, user_id: UUID | None, client_id: UUID | None
) -> frozenset[str]:
    rights: frozenset[str] | None = None
    try:
        if user_id is not None and get_user(home, user_id).is_active:
            rights = get_user_permissions(get_organization_by_id(organization_id), home, user_id)
        if client_id is not None:
            client = find_client_by_id(home, client_id, fresh=True)
            scopes = frozenset(client.document["scopes"] if client and client.is_active else ())
            rights = scopes if user_id is None else intersect_permissions(scopes, rights or ())
    except NotFound:
        rights = None
    if rights is None:
        raise Forbidden("Whoever began this import may not do it any more.", permission="users:write")
    return rights


@transaction
def start_import(actor: Actor, import_id: str) -> ImportRecord:
    """What a dry run has checked is brought in, by the rights of who starts it.

    Raises Forbidden, NotFound, Conflict unless it is checked and waits. Audit: ``user_import.started``.
    """
    actor.require("users:write")
    row = get_import_row(actor, import_id)
    changed = count_changed(
        update(UserImport)
        .where(
            UserImport.organization_id == row.organization_id,
            UserImport.id == row.id,
            UserImport.status == CHECKED,
        )
        .values(
            status=RUNNING,
            # Nobody sits in front of it now, even if it was the command line that checked it.
            is_foreground=False,
            importer=serialize_actor(actor),
            worked_at=clock.now(),
            ended_at=None,
            **dict.fromkeys(("position", "created", "updated", "skipped", "refused"), 0),
        )
    )
    if not changed:
        raise Conflict(
            "Only an import that was checked, and nothing else since, can begin.", code="not_checked"
        )
    remove_refusals(row.organization_id, row.id)
    audit.record(
        actor,
        "user_import.started",
        target_type="user_import",
        target_id=public_id("imp", row.id),
        after={"name": row.name, "rows": row.total, "on_existing": row.on_existing},
    )
    on_commit(import_ready.set)
    db.session.expire_all()
    return import_record(get_import_row(actor, import_id))


@read
def find_interrupted(actor: Actor, digest: str) -> ImportRecord | None:
    """The import of the file with this SHA-256 that the command line began and did not end. Raises Forbidden."""
    actor.require("users:write")
    row = db.session.scalar(
        select(UserImport)
        .where(
            UserImport.organization_id == actor.organization_id,
            UserImport.status.in_(UNDER_WAY),
            UserImport.is_foreground,
            UserImport.digest == bytes.fromhex(digest),
        )
        .order_by(UserImport.id.desc())
        .limit(1)
    )
    return import_record(row) if row is not None else None


PART_ROWS = 250
PART_CHARACTERS = 1 << 20
"""A part is one value of one row, and a server takes no statement of any length."""
PIECE_BYTES = 64 * 1024
MAX_UNFINISHED_IMPORTS = 10
"""Imports of an organization that wait or run."""
UPLOAD_LIFETIME = timedelta(hours=1)
PART_RETENTION = timedelta(days=2)
IMPORT_RETENTION = timedelta(days=30)

Reader = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was taken; it counts once it is confirmed, and is gone within the hour otherwise."""

    id: UUID
    digest: str
    rows: int


def receive_upload(
    actor: Actor,
    read: Reader,
    *,
    file_format: str,
    name: str = "",
    on_existing: str = "skip",
    is_foreground: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> Upload:
    """The whole file is kept, sealed, in parts of PART_ROWS rows.

    ``read`` gives so many more bytes at most, and none at the end. ``progress`` is told how many rows are kept. Raises
    Forbidden, InvalidInput for the options, Conflict where too many imports wait, UnreadableFile; after any of them
    nothing is kept. Call it outside of a transaction: the bytes may come slowly.
    """
    actor.require("users:write")
    validate_import_options(actor, name=name, file_format=file_format, on_existing=on_existing)
    digest = hashlib.sha256()
    import_id = _open(actor, name, file_format, on_existing, is_foreground)
    try:
        rows = parts = 0
        for part in _parts(read_rows(_pieces(read, digest.update), file_format)):
            _keep_part(actor.organization_id, import_id, parts, f"[{','.join(part)}]".encode())
            rows, parts = rows + len(part), parts + 1
            progress(rows)
        if not rows:
            raise UnreadableFile("The file holds nobody.", field="file", code=UnreadableFile.code)
        _close(actor.organization_id, import_id, digest.digest(), rows, parts)
    except BaseException:
        import_records.discard_upload(actor, import_id)
        raise
    return Upload(import_id, digest.hexdigest(), rows)


@transaction
def confirm_upload(actor: Actor, upload: Upload, *, is_dry_run: bool) -> ImportRecord:
    """The import begins, or the dry run, which ends with what an import would do.

    Raises Forbidden, Conflict when it has begun. Audit: ``user_import.started`` or ``user_import.checked``.
    """
    actor.require("users:write")
    now = clock.now()
    changed = count_changed(
        update(UserImport)
        .where(
            UserImport.organization_id == actor.organization_id,
            UserImport.id == upload.id,
            UserImport.status == UPLOADING,
            UserImport.total > 0,
        )
        .values(status=CHECKING if is_dry_run else RUNNING, worked_at=now, expires_at=now + IMPORT_RETENTION)
    )
    if not changed:
        raise Conflict("This upload has ended. Send the file again.", code="upload_ended")
    db.session.expire_all()
    row = db.session.get_one(UserImport, (actor.organization_id, upload.id))
    audit.record(
        actor,
        "user_import.checked" if is_dry_run else "user_import.started",
        target_type="user_import",
        target_id=public_id("imp", upload.id),
        after={"name": row.name, "rows": row.total, "on_existing": row.on_existing, "digest": upload.digest},
    )
    on_commit(import_ready.set)
    return import_record(row)


def validate_import_options(
    actor: Actor, *, name: str = "", file_format: str = FORMATS[0], on_existing: str = ON_EXISTING[0]
) -> None:
    """The options are such as an import takes. Raises Forbidden, InvalidInput naming each wrong one."""
    actor.require("users:write")
    errors = []
    for field, value, allowed in (
        ("format", file_format, FORMATS),
        ("on_existing", on_existing, ON_EXISTING),
    ):
        if value not in allowed:
            errors.append(FieldError(field, "not_allowed", f"This must be one of: {', '.join(allowed)}."))
    problem = text_problem(name, longest=200, shortest=0)
    if problem is not None:
        errors.append(FieldError("name", problem.code, problem.message))
    if errors:
        raise InvalidInput.of(errors)


def _pieces(read: Reader, note: Callable[[bytes], None]) -> Iterator[bytes]:
    """The bytes in pieces of one size, however they come."""
    pending = b""
    while True:
        more = read(PIECE_BYTES - len(pending))
        note(more)
        pending += more
        if pending and (not more or len(pending) >= PIECE_BYTES):
            yield pending
            pending = b""
        if not more:
            return


def _parts(rows: Iterator[Row]) -> Iterator[list[str]]:
    """Rows in JSON by PART_ROWS, by fewer where they are long; with one address the later say which was first."""
    first: dict[bytes, int] = {}
    part: list[str] = []
    size = 0
    for row in rows:
        email = row.fields.get("email")
        canonical = canonical_email(email) if isinstance(email, str) else None
        same = row.number
        if canonical is not None:
            same = first.setdefault(hashlib.blake2b(canonical.encode(), digest_size=12).digest(), row.number)
        problem = row.problem or (f"Row {same} has the same address." if same != row.number else None)
        part.append(json.dumps({"number": row.number, "fields": dict(row.fields), "problem": problem}))
        size += len(part[-1])
        if len(part) == PART_ROWS or size >= PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


@transaction
def _open(actor: Actor, name: str, file_format: str, on_existing: str, is_foreground: bool) -> UUID:
    unfinished = db.session.scalar(
        select(func.count()).where(
            UserImport.organization_id == actor.organization_id,
            UserImport.status.in_(UNFINISHED),
            UserImport.expires_at > clock.now(),
            UserImport.worked_at > clock.now() - PART_RETENTION,
        )
    )
    if (unfinished or 0) >= MAX_UNFINISHED_IMPORTS:
        message = f"{MAX_UNFINISHED_IMPORTS} imports wait or run already. Let them end, or cancel one."
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


def _keep_part(organization_id: str, import_id: UUID, number: int, rows: bytes) -> None:
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
def _close(organization_id: str, import_id: UUID, digest: bytes, rows: int, parts: int) -> None:
    db.session.execute(
        update(UserImport)
        .where(UserImport.organization_id == organization_id, UserImport.id == import_id)
        .values(digest=digest, total=rows, parts=parts)
        .execution_options(synchronize_session=False)
    )
