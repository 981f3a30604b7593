"""The form of an archive: a readable head, then sealed frames that nobody can read, change, cut or reorder.

Each frame is AES-256-GCM under a key from the passphrase (scrypt, RFC 7914). Its nonce is its number and whether it
is the last one, and the head is associated data of each: a frame fits in one place of one archive alone (the STREAM
construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015).
"""

from __future__ import annotations

import hashlib
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

TRAVELS = frozenset(
    {
        "users",
        "authenticator_apps",
        "recovery_codes",
        "passkey_handles",
        "passkeys",
        "role_assignments",
        "invitations",
        "resources",
        "scopes",
        "clients",
        "client_credentials",
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

# What is lost with each of them is had again by the next sign-in or refresh.
STAYS: Mapping[str, str] = {
    "sessions": "people sign in again where the organization lives from now on",
    "session_clients": "clients hear of the end of sign-ins, which stay",
    "access_tokens": "live for an hour; clients get new ones with the refresh tokens, which travel",
    "authorization_codes": "live for a minute",
    "authorization_requests": "live for minutes, in one browser",
    "pushed_requests": "live for a minute",
    "device_codes": "live for minutes",
    "used_identifiers": "live for minutes, as what they guard does",
    "known_browsers": "their cookies belong to the installation's own address",
    "registrations": "people ask for their accounts anew",
    "account_links": "live for minutes, and are asked for anew",
    "attempts": "count for minutes",
    "second_factor_tries": "count for a month, of those who guess at the installation's own pages",
    "pending_sign_ins": "wait for minutes, in one browser",
    "idempotency_keys": "count for a day, at the installation that was called",
    "credential_uses": "samples of use for the verdict of a secret, which begins anew",
    "client_requests": "members ask anew where the organization lives from now on",
    "failed_requests": "the log of the installation that refused them, for days",
    "outbox": "mail and calls are sent by the installation that owes them",
    "revocation_log": "read by the installation that revoked; what it says stands in the rows themselves",
    "webhooks": "their addresses belong to the installation that signs for them; they are set up anew",
    "webhook_deliveries": "stay with their webhooks",
    "user_imports": "a file is sent again where the organization lives from now on; whom it brought in travels",
    "user_import_parts": "go with the import",
    "user_import_refusals": "go with the import",
    "view_changes": "lives for a minute",
}


def travelling_tables() -> list[Table]:
    """The tables that go into the file, parents before children."""
    return [table for table in Base.metadata.sorted_tables if table.name in TRAVELS]


def of_organization(table: Table, organization_id: str) -> ColumnElement[bool]:
    """The rows of the table that belong to the organization and to nobody else."""
    own: ColumnElement[bool] = table.c.organization_id == organization_id
    # A role that somebody of root holds by name is root's matter, and its user is not in the file.
    same_home = (
        table.c.user_organization_id == organization_id if table.name == "role_assignments" else true()
    )
    return own & same_home


def as_record(row: Sequence[Any], table: Table) -> list[Any]:
    """A row in JSON's types, in the order of the columns."""
    return [
        value if isinstance(column.type, Json) else _written(value)
        for value, column in zip(row, table.columns, strict=True)
    ]


def as_row(record: Sequence[Any], columns: Sequence[str], table: Table) -> dict[str, Any]:
    """The values of a record by column, in Python's types."""
    return {
        name: None if value is None else _read(value, table.c[name].type)
        for name, value in zip(columns, record, strict=True)
    }


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _read(value: Any, kind: Any) -> Any:
    if isinstance(kind, Json):
        return value
    if isinstance(kind, Uuid):
        return UUID(value)
    if isinstance(kind, UtcDateTime):
        return datetime.fromisoformat(value)
    if isinstance(kind, Digest | Sealed | LargeBinary):
        return b64decode(value)
    return value


MAGIC = b"GATEHOUSE ORGANIZATION 1\n"
SHORTEST_PASSPHRASE = 12
_FRAME = 1 << 20
_LONGEST_FRAME = 16 << 20
_LONGEST_HEAD = 4096
# 128 MiB and a third of a second for each guess.
_SCRYPT = {"n": 1 << 17, "r": 8, "p": 1}


class Unreadable(InvalidInput):
    """The file is no archive, was changed or cut, or the passphrase is another's."""

    code = "unreadable_archive"


class ArchiveWriter:
    """Records go into the stream, a frame of about a megabyte at a time; only ``close`` makes it whole.

    Raises InvalidInput for a passphrase of less than ``SHORTEST_PASSPHRASE`` characters.
    """

    def __init__(self, stream: BinaryIO, passphrase: str, head: Mapping[str, Any]) -> None:
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise InvalidInput(
                f"Choose a passphrase of at least {SHORTEST_PASSPHRASE} characters: it alone protects the file.",
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
        """One more record, of JSON's types."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        self._waiting.append(line)
        self._size += len(line)
        if self._size >= _FRAME:
            self._put(is_last=False)

    def close(self) -> None:
        """The last frame stands; without it the archive is known to be cut."""
        self._put(is_last=True)

    def _put(self, *, is_last: bool) -> None:
        sealed = self._frames.seal(zlib.compress(b"\n".join(self._waiting), 6), is_last=is_last)
        self._stream.write(len(sealed).to_bytes(4, "big") + sealed)
        self._waiting, self._size = [], 0


class ArchiveReader:
    """The head of an archive, readable by anybody, and its records for whoever has the passphrase."""

    def __init__(self, stream: BinaryIO, passphrase: str) -> None:
        """Raises Unreadable when the stream is no archive."""
        if stream.read(len(MAGIC)) != MAGIC:
            raise Unreadable("This is not the file of an organization, or of another release's form.")
        line = stream.readline(_LONGEST_HEAD)
        try:
            self.head: dict[str, Any] = json.loads(line)
            salt = b64decode(self.head["salt"], validate=True)
            is_known = self.head["scrypt"] == _SCRYPT and isinstance(self.head["organization"], str)
        except (ValueError, TypeError, KeyError) as error:
            raise Unreadable("The head of the file was changed or cut.") from error
        if not is_known:
            raise Unreadable("The head of the file was changed or cut.")
        self._stream, self._frames = stream, _Frames(passphrase, salt, line)

    def records(self) -> Iterator[Any]:
        """Every record in order. Raises Unreadable at the first frame that does not fit, or at an early end."""
        is_last = False
        while not is_last:
            plain, is_last = self._frames.unseal(self._next_frame())
            for line in _unpacked(plain).split(b"\n"):
                if line:
                    yield json.loads(line)
        if self._stream.read(1):
            raise Unreadable("Something was added to the end of the file.")

    def _next_frame(self) -> bytes:
        length = int.from_bytes(self._stream.read(4), "big")
        sealed = self._stream.read(length) if 0 < length <= _LONGEST_FRAME else b""
        if not sealed or len(sealed) != length:
            raise Unreadable("The file was cut: its end is missing.")
        return sealed


def _unpacked(packed: bytes) -> bytes:
    """What a frame holds; a few bytes can be made to unpack to gigabytes."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(packed, _LONGEST_FRAME)
    except zlib.error as error:
        raise Unreadable("The file holds something else than it should.") from error
    if not unpacking.eof:
        raise Unreadable("A part of the file is larger than any that is written.")
    return plain


class _Frames:
    """Seals and opens the frames of one archive in their order."""

    def __init__(self, passphrase: str, salt: bytes, head: bytes) -> None:
        words = unicodedata.normalize("NFC", passphrase).encode()
        self._cipher = AESGCM(Scrypt(salt=salt, length=32, **_SCRYPT).derive(words))
        self._head = hashlib.sha256(head).digest()
        self._number = 0

    def seal(self, plain: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(is_last=is_last), plain, self._head)

    def unseal(self, sealed: bytes) -> tuple[bytes, bool]:
        """(the plaintext, whether it is the last frame's)."""
        number = self._number
        for is_last in (False, True):
            self._number = number
            try:
                return self._cipher.decrypt(self._nonce(is_last=is_last), sealed, self._head), is_last
            except InvalidTag:
                continue
        reason = "The file was changed." if number else "The passphrase is wrong, or the file was changed."
        raise Unreadable(reason, field="passphrase" if not number else None)

    def _nonce(self, *, is_last: bool) -> bytes:
        self._number += 1
        return self._number.to_bytes(11, "big") + bytes([is_last])
