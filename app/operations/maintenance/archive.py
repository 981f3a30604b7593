"""The archive format of an exported organization: a readable header, then encrypted frames.

Each frame is encrypted with AES-256-GCM under a key derived from the passphrase (scrypt, RFC 7914). The nonce consists
of the frame's number and whether it is the last, and the header is associated data of every frame. Frames therefore
cannot be read, changed, cut, reordered or moved to another archive (the STREAM construction of Hoang, Reyhanitabar,
Rogaway and Vizár, 2015).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import unicodedata
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from sqlalchemy import ColumnElement, LargeBinary, Table, true

from app.models.base import Base, Digest, Json, Sealed, UtcDateTime, Uuid
from app.rules.errors import InvalidInput

EXPORTED_TABLES = frozenset(
    {
        "users",
        "authenticator_apps",
        "recovery_codes",
        "passkey_handles",
        "passkeys",
        "identity_providers",
        "linked_identities",
        "provisioning_tokens",
        "role_assignments",
        "user_groups",
        "group_members",
        "app_role_assignments",
        "invitations",
        "resources",
        "scopes",
        "clients",
        "client_credentials",
        "client_access",
        "client_registrations",
        "client_logos",
        "organization_logos",
        "registration_tokens",
        "signing_keys",
        "consents",
        "grants",
        "audit_events",
        "audit_links",
        "audit_chains",
        "revocation_receipts",
    }
)

# The next sign-in or refresh recreates what is lost with these tables.
OMITTED_TABLES: Mapping[str, str] = {
    "sessions": "users sign in again at the new installation",
    "session_clients": "belong to the sessions",
    "access_tokens": "expire within an hour, and clients get new ones with their exported refresh tokens",
    "status_lists": "name access tokens, which are not accepted at the new installation",
    "status_list_entries": "belong to the lists",
    "authorization_codes": "expire within a minute",
    "authorization_requests": "expire within minutes and belong to one browser",
    "playground_runs": "expire within an hour and belong to one browser",
    "pushed_requests": "expire within a minute",
    "device_codes": "expire within minutes",
    "used_identifiers": "expire within minutes, like the assertions that they protect",
    "known_browsers": "their cookies belong to the host name of the installation",
    "registrations": "users request their accounts again",
    "account_links": "expire within minutes and are requested again",
    "attempts": "count for minutes",
    "request_counts": "count for minutes",
    "second_factor_tries": "count attempts at this installation's own pages",
    "pending_sign_ins": "expire within minutes and belong to one browser",
    "idempotency_keys": "are valid for a day at this installation",
    "credential_uses": "usage samples, which start again",
    "client_requests": "members request again at the new installation",
    "failed_requests": "belong to the installation that rejected the requests",
    "usage_counters": "count what this installation did",
    "sampled_requests": "expire within a day",
    "outbox": "this installation sends its own messages",
    "revocation_log": "belongs to this installation; the revocations are part of the rows themselves",
    "webhooks": "their secrets belong to this installation; they are set up again",
    "webhook_deliveries": "belong to the webhooks",
    "user_imports": "a file is uploaded again at the new installation; imported users are exported",
    "user_import_parts": "belong to the import",
    "user_import_refusals": "belong to the import",
    "view_changes": "tell the caches of this installation what to read again",
}
MAGIC = b"GATEHOUSE ORGANIZATION 1\n"
MIN_PASSPHRASE_LENGTH = 12
# The largest rows are logos of 350 KiB, and clients with several long lists of up to 64 KiB.
MAX_RECORD_BYTES = 2 << 20
_FRAME_BYTES = 1 << 20
_MAX_FRAME_BYTES = 16 << 20
_MAX_HEADER_BYTES = 4096
# Each guess costs 128 MiB and a third of a second.
_SCRYPT = {"n": 1 << 17, "r": 8, "p": 1}


def list_exported_tables() -> list[Table]:
    """List the exported tables, parents before children."""
    return [table for table in Base.metadata.sorted_tables if table.name in EXPORTED_TABLES]


def organization_filter(table: Table, organization_id: str) -> ColumnElement[bool]:
    """Return the condition for the rows of the table that belong to the organization."""
    own: ColumnElement[bool] = table.c.organization_id == organization_id
    # Roles of root's users are not exported, because their users are not in the file.
    same_home = (
        table.c.user_organization_id == organization_id if table.name == "role_assignments" else true()
    )
    return own & same_home


def row_to_record(row: Sequence[Any], table: Table) -> list[Any]:
    """Convert a row to JSON types, in the order of the columns."""
    return [
        value if isinstance(column.type, Json) else _to_json_value(value)
        for value, column in zip(row, table.columns, strict=True)
    ]


def record_to_row(record: Sequence[Any], columns: Sequence[str], table: Table) -> dict[str, Any]:
    """Convert a record to Python values by column."""
    return {
        name: None if value is None else _from_json_value(value, table.c[name].type)
        for name, value in zip(columns, record, strict=True)
    }


def _to_json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _from_json_value(value: Any, kind: Any) -> Any:
    if isinstance(kind, Json):
        return value
    if isinstance(kind, Uuid):
        return UUID(value)
    if isinstance(kind, UtcDateTime):
        return datetime.fromisoformat(value)
    if isinstance(kind, Digest | Sealed | LargeBinary):
        return b64decode(value)
    return value


class UnreadableArchive(InvalidInput):
    """The file is not an archive, was changed or truncated, or the passphrase is wrong."""

    code = "unreadable_archive"


class ArchiveWriter:
    """Write records to the stream in encrypted frames of about a megabyte. The archive is valid only after ``close``.

    Raises InvalidInput for a passphrase shorter than ``MIN_PASSPHRASE_LENGTH`` characters.
    """

    def __init__(self, stream: BinaryIO, passphrase: str, head: Mapping[str, Any]) -> None:
        if len(passphrase) < MIN_PASSPHRASE_LENGTH:
            raise InvalidInput(
                f"Choose a passphrase of at least {MIN_PASSPHRASE_LENGTH} characters. It alone protects the file.",
                field="passphrase",
                code="too_short",
            )
        salt = os.urandom(16)
        line = json.dumps({**head, "salt": b64encode(salt).decode(), "scrypt": _SCRYPT}).encode() + b"\n"
        self._stream, self._frames = stream, _Frames(passphrase, salt, line)
        self._waiting: list[bytes] = []
        self._size = 0
        stream.write(MAGIC + line)

    def write(self, record: Any) -> None:
        """Write one record of JSON types."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        self._waiting.append(line)
        self._size += len(line)
        if self._size >= _FRAME_BYTES:
            self._put(is_last=False)

    def close(self) -> None:
        """Write the last frame. An archive without it is recognized as truncated."""
        self._put(is_last=True)

    def _put(self, *, is_last: bool) -> None:
        sealed = self._frames.seal(zlib.compress(b"\n".join(self._waiting), 6), is_last=is_last)
        self._stream.write(len(sealed).to_bytes(4, "big") + sealed)
        self._waiting, self._size = [], 0


class ArchiveReader:
    """Read the header of an archive, which is not encrypted, and its records with the passphrase."""

    def __init__(self, stream: BinaryIO, passphrase: str) -> None:
        """Read the header. Raises UnreadableArchive if the stream is not an archive."""
        if stream.read(len(MAGIC)) != MAGIC:
            raise UnreadableArchive("This is not an organization archive, or it has an unsupported format.")
        line = stream.readline(_MAX_HEADER_BYTES)
        try:
            self.head: dict[str, Any] = json.loads(line)
            salt = b64decode(self.head["salt"], validate=True)
            is_known = self.head["scrypt"] == _SCRYPT and isinstance(self.head["organization"], str)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnreadableArchive("The header of the file was changed or truncated.") from error
        if not is_known:
            raise UnreadableArchive("The header of the file was changed or truncated.")
        self._stream, self._frames = stream, _Frames(passphrase, salt, line)

    def records(self) -> Iterator[Any]:
        """Iterate over all records. Raises UnreadableArchive at the first invalid frame or record, or an early end."""
        return (record for record, _size in self.sized_records())

    def sized_records(self) -> Iterator[tuple[Any, int]]:
        """Iterate over all records with the number of bytes of each. Raises as ``records``."""
        is_last = False
        while not is_last:
            plain, is_last = self._frames.unseal(self._next_frame())
            # One line after the other: millions of short ones would take many times the memory of the frame.
            for line in io.BytesIO(_decompress(plain)):
                if line != b"\n":
                    yield _parse(line), len(line)
        if self._stream.read(1):
            raise UnreadableArchive("The file has unexpected data at its end.")

    def _next_frame(self) -> bytes:
        length = int.from_bytes(self._stream.read(4), "big")
        sealed = self._stream.read(length) if 0 < length <= _MAX_FRAME_BYTES else b""
        if not sealed or len(sealed) != length:
            raise UnreadableArchive("The file is truncated.")
        return sealed


def _parse(line: bytes) -> Any:
    if len(line) > MAX_RECORD_BYTES:
        raise UnreadableArchive("The file has an oversized row.")
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableArchive("The content is malformed.") from error


def _decompress(packed: bytes) -> bytes:
    """Decompress a frame, with a limit because a few bytes can expand to gigabytes."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(packed, _MAX_FRAME_BYTES)
    except zlib.error as error:
        raise UnreadableArchive("The content is malformed.") from error
    if not unpacking.eof:
        raise UnreadableArchive("The file has an oversized frame.")
    return plain


class _Frames:
    """Encrypt and decrypt the frames of one archive in order."""

    def __init__(self, passphrase: str, salt: bytes, head: bytes) -> None:
        words = unicodedata.normalize("NFC", passphrase).encode()
        self._cipher = AESGCM(Scrypt(salt=salt, length=32, **_SCRYPT).derive(words))
        self._head = hashlib.sha256(head).digest()
        self._number = 0

    def seal(self, plain: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(is_last=is_last), plain, self._head)

    def unseal(self, sealed: bytes) -> tuple[bytes, bool]:
        """Return (plaintext, whether it is of the last frame)."""
        number = self._number
        for is_last in (False, True):
            self._number = number
            try:
                return self._cipher.decrypt(self._nonce(is_last=is_last), sealed, self._head), is_last
            except InvalidTag:
                continue
        reason = "The file was changed." if number else "The passphrase is wrong, or the file was changed."
        raise UnreadableArchive(reason, field="passphrase" if not number else None)

    def _nonce(self, *, is_last: bool) -> bytes:
        self._number += 1
        return self._number.to_bytes(11, "big") + bytes([is_last])
