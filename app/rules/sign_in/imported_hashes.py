"""Foreign hashes: passwords that another system hashed, taken over as they are until their owner signs in.

``parse`` reads what other systems export and gives the one form that is stored, for ``foreign_passwords``. What a
hash costs to verify is written in the hash itself, so whoever imports one decides what each sign-in costs here:
nothing dearer than about a second of one core and 128 MiB is taken, and nothing that can be guessed for nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from app.rules.fields import Problem

MAX_STORED_LENGTH = 255
"""Characters of a stored hash: what its column holds."""
BCRYPT_COSTS = range(8, 15)
"""2^14 rounds take a second of a core."""
PBKDF2_ITERATIONS = range(1_000, 2_000_001)
"""Of the first block, which is all that is ever derived: 0.25 to 0.8 seconds."""
MAX_MEMORY_KIB = 128 * 1024
"""Every core verifies one password at a time, so a process holds this once a core."""
MAX_ARGON2_WORK = 1024 * 1024
"""KiB times passes: half a second."""
MAX_ARGON2_PARALLELISM = 8
SCRYPT_LOG_N = range(10, 18)
MAX_SCRYPT_WORK = 256 * 1024
"""KiB times p."""
SALT_BYTES = range(8, 65)
DIGEST_BYTES = range(16, 65)

_BCRYPT = re.compile(r"(\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53})", re.ASCII)
_ARGON2 = re.compile(
    r"(\$argon2(id|i|d)(?:\$v=(?:16|19))?\$m=(\d{1,9}),t=(\d{1,6}),p=(\d{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+))",
    re.ASCII,
)
PBKDF2 = re.compile(
    r"\$pbkdf2(-sha1|-sha256|-sha512)?\$(?:i=)?(\d{1,9})(?:,l=\d{1,3})?\$([A-Za-z0-9+/.]+)={0,2}\$([A-Za-z0-9+/.]+)={0,2}",
    re.ASCII,
)
SCRYPT = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/.]+)={0,2}\$([A-Za-z0-9+/.]+)={0,2}",
    re.ASCII,
)
_DJANGO_PBKDF2 = re.compile(
    r"pbkdf2_(sha1|sha256|sha512)\$(\d{1,9})\$([^$]{1,64})\$([A-Za-z0-9+/]+={0,2})", re.ASCII
)
_DJANGO_SCRYPT = re.compile(
    r"scrypt\$([^$]{1,64})\$(\d{1,7})\$(\d{1,4})\$(\d{1,4})\$([A-Za-z0-9+/]+={0,2})", re.ASCII
)
_WERKZEUG_PBKDF2 = re.compile(r"pbkdf2:(sha1|sha256|sha512):(\d{1,9})\$([^$]{1,64})\$([0-9a-f]+)", re.ASCII)
_WERKZEUG_SCRYPT = re.compile(r"scrypt:(\d{1,7}):(\d{1,4}):(\d{1,4})\$([^$]{1,64})\$([0-9a-f]+)", re.ASCII)
BCRYPT_SHA256_PREFIX = "$bcrypt-sha256"
DIGEST_SIZES = {"sha1": 20, "sha256": 32, "sha512": 64}
# What Django writes before a hash in another's form, and how that form begins.
_DJANGO_WRAPPED = {"argon2": "$argon2", "bcrypt$": "$2", "bcrypt_sha256$": "$2"}
_DOCUMENT_FIELDS = frozenset({"algorithm", "iterations", "salt", "value"})


class UnsupportedHash(Exception):
    """Not a hash that is taken over; ``problem`` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(code, message)


@dataclass(frozen=True, slots=True)
class ImportedHash:
    """A hash in the form that is stored; ``scheme`` names its kind and cost, which its stored form says too."""

    stored: str
    scheme: str


def parse_hash(sent: Any) -> ImportedHash:
    """The hash to store for what another system exported.

    A string in the form of bcrypt, PHC (argon2, PBKDF2, scrypt), passlib, Django or Werkzeug; or Keycloak's as
    ``{"algorithm": "pbkdf2-sha256", "iterations": 27500, "salt": "<base64>", "value": "<base64>"}``. Raises
    UnusableHash, naming the bound that it oversteps.
    """
    if isinstance(sent, Mapping):
        return _of_document(sent)
    if not isinstance(sent, str):
        raise UnsupportedHash("wrong_type", "A password hash is a string, or an object as Keycloak has it.")
    if len(sent) > 2 * MAX_STORED_LENGTH:
        raise UnsupportedHash("too_long", f"A password hash has at most {2 * MAX_STORED_LENGTH} characters.")
    for form, read in _FORMS:
        match = form.fullmatch(sent)
        if match is not None:
            return read(*match.groups())
    for prefix, inner in _DJANGO_WRAPPED.items():
        if sent.startswith(f"{prefix}{inner}"):
            return _of_django(prefix, sent.removeprefix(prefix))
    if sent.startswith(f"{BCRYPT_SHA256_PREFIX}$2"):
        return _of_django("bcrypt_sha256$", sent.removeprefix(BCRYPT_SHA256_PREFIX))
    raise UnsupportedHash(
        "unknown_hash",
        "This is no hash that can be taken over: bcrypt, PBKDF2, argon2 or scrypt as the manual writes them. "
        "Leave it out, and the user chooses a password by a link.",
    )


def _of_bcrypt(sent: str, exponent: str) -> ImportedHash:
    cost = int(exponent)
    if cost not in BCRYPT_COSTS:
        raise _beyond("bcrypt's cost", cost, BCRYPT_COSTS)
    return ImportedHash(sent, f"bcrypt {cost}")


def _of_argon2(sent: str, kind: str, m: str, t: str, p: str, salt: str, digest: str) -> ImportedHash:
    memory, passes, lanes = int(m), int(t), int(p)
    if not 1 <= lanes <= MAX_ARGON2_PARALLELISM:
        raise _beyond("argon2's p", lanes, range(1, MAX_ARGON2_PARALLELISM + 1))
    if not max(1024, 8 * lanes) <= memory <= MAX_MEMORY_KIB:
        raise _beyond("argon2's m (KiB)", memory, range(max(1024, 8 * lanes), MAX_MEMORY_KIB + 1))
    if passes < 1 or memory * passes > MAX_ARGON2_WORK:
        raise _beyond("argon2's t at this m", passes, range(1, MAX_ARGON2_WORK // memory + 1))
    _require_size(unb64(salt), "salt", SALT_BYTES)
    _require_size(unb64(digest), "digest", DIGEST_BYTES)
    return ImportedHash(sent, f"argon2{kind} {memory} {passes} {lanes}")


def _of_pbkdf2(name: str, iterations: int, salt: bytes, digest: bytes) -> ImportedHash:
    if iterations not in PBKDF2_ITERATIONS:
        raise _beyond("PBKDF2's iterations", iterations, PBKDF2_ITERATIONS)
    _require_size(salt, "salt", SALT_BYTES)
    _require_size(digest, "digest", DIGEST_BYTES)
    # Each block is derived by itself: the first one tells a password as surely as all of them, for a part of the cost.
    first = digest[: DIGEST_SIZES[name]]
    stored = f"$pbkdf2-{name}$i={iterations}${b64(salt)}${b64(first)}"
    return ImportedHash(stored, f"pbkdf2-{name} {iterations}")


def _of_scrypt(log_n: int, r: int, p: int, salt: bytes, digest: bytes) -> ImportedHash:
    if log_n not in SCRYPT_LOG_N:
        raise _beyond("scrypt's ln", log_n, SCRYPT_LOG_N)
    memory = (r << log_n) // 8
    # N below 2^(16 r) is demanded by RFC 7914 section 2, and by whoever computes it.
    least = log_n // 16 + 1
    if r < least or memory > MAX_MEMORY_KIB:
        raise _beyond("scrypt's r at this ln", r, range(least, (MAX_MEMORY_KIB * 8 >> log_n) + 1))
    if p < 1 or memory * p > MAX_SCRYPT_WORK:
        raise _beyond("scrypt's p at this ln and r", p, range(1, MAX_SCRYPT_WORK // max(1, memory) + 1))
    _require_size(salt, "salt", SALT_BYTES)
    _require_size(digest, "digest", DIGEST_BYTES)
    return ImportedHash(
        f"$scrypt$ln={log_n},r={r},p={p}${b64(salt)}${b64(digest)}", f"scrypt {log_n} {r} {p}"
    )


def _of_phc_pbkdf2(name: str | None, iterations: str, salt: str, digest: str) -> ImportedHash:
    return _of_pbkdf2((name or "-sha1")[1:], int(iterations), unb64(salt), unb64(digest))


def _of_phc_scrypt(log_n: str, r: str, p: str, salt: str, digest: str) -> ImportedHash:
    return _of_scrypt(int(log_n), int(r), int(p), unb64(salt), unb64(digest))


def _of_django_pbkdf2(name: str, iterations: str, salt: str, digest: str) -> ImportedHash:
    return _of_pbkdf2(name, int(iterations), salt.encode(), unb64(digest))


def _of_django_scrypt(salt: str, n: str, r: str, p: str, digest: str) -> ImportedHash:
    return _of_scrypt(_log_of(n), int(r), int(p), salt.encode(), unb64(digest))


def _of_werkzeug_pbkdf2(name: str, iterations: str, salt: str, digest: str) -> ImportedHash:
    return _of_pbkdf2(name, int(iterations), salt.encode(), _unhex(digest))


def _of_werkzeug_scrypt(n: str, r: str, p: str, salt: str, digest: str) -> ImportedHash:
    return _of_scrypt(_log_of(n), int(r), int(p), salt.encode(), _unhex(digest))


def _of_django(prefix: str, rest: str) -> ImportedHash:
    found = parse_hash(rest)
    if prefix != "bcrypt_sha256$":
        return found
    return ImportedHash(
        f"{BCRYPT_SHA256_PREFIX}{found.stored}", found.scheme.replace("bcrypt", "bcrypt-sha256")
    )


def _of_document(sent: Mapping[str, Any]) -> ImportedHash:
    name = sent.get("algorithm")
    iterations, salt, digest = sent.get("iterations"), sent.get("salt"), sent.get("value")
    if sent.keys() != _DOCUMENT_FIELDS or not isinstance(salt, str) or not isinstance(digest, str):
        fields = ", ".join(sorted(_DOCUMENT_FIELDS))
        raise UnsupportedHash("unknown_hash", f"A hash as an object has exactly the fields {fields}.")
    if name not in ("pbkdf2", "pbkdf2-sha256", "pbkdf2-sha512"):
        message = (
            "The algorithm must be pbkdf2, pbkdf2-sha256 or pbkdf2-sha512; write argon2 in its PHC form."
        )
        raise UnsupportedHash("unknown_hash", message)
    if isinstance(iterations, bool) or not isinstance(iterations, int):
        raise UnsupportedHash("wrong_type", "The iterations of a hash are a number.")
    return _of_pbkdf2(name.partition("-")[2] or "sha1", iterations, unb64(salt), unb64(digest))


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., ImportedHash]], ...] = (
    (_BCRYPT, _of_bcrypt),
    (_ARGON2, _of_argon2),
    (PBKDF2, _of_phc_pbkdf2),
    (SCRYPT, _of_phc_scrypt),
    (_DJANGO_PBKDF2, _of_django_pbkdf2),
    (_DJANGO_SCRYPT, _of_django_scrypt),
    (_WERKZEUG_PBKDF2, _of_werkzeug_pbkdf2),
    (_WERKZEUG_SCRYPT, _of_werkzeug_scrypt),
)


def _beyond(what: str, value: int, allowed: range) -> UnsupportedHash:
    low, high = allowed.start, allowed.stop - 1
    code = "hash_too_cheap" if value < low else "hash_too_expensive"
    return UnsupportedHash(code, f"{what} is {value}; hashes with {low} to {high} are taken over.")


def _require_size(value: bytes, what: str, allowed: range) -> None:
    if len(value) not in allowed:
        low, high = allowed.start, allowed.stop - 1
        message = f"The hash's {what} has {len(value)} bytes; {low} to {high} are taken over."
        raise UnsupportedHash("malformed_hash", message)


def _log_of(n: str) -> int:
    number = int(n)
    if number < 2 or number & (number - 1):
        raise UnsupportedHash("malformed_hash", "scrypt's N must be a power of two.")
    return number.bit_length() - 1


def unb64(text: str) -> bytes:
    """The bytes, of passlib's alphabet too, padded or not. Raises UnusableHash."""
    plain = text.replace(".", "+").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnsupportedHash(
            "malformed_hash", "The salt or the digest of this hash is not base64."
        ) from error


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise UnsupportedHash("malformed_hash", "The digest of this hash is not hexadecimal.") from error


def b64(value: bytes) -> str:
    """Base64 without padding, as PHC has it."""
    return base64.b64encode(value).decode().rstrip("=")


_hasher = PasswordHasher()


def is_imported(stored: str) -> bool:
    """Whether the stored hash is of a kind that is never made here. Argon2 with other parameters is not told apart."""
    return not stored.startswith("$argon2")


def verify_imported_password(stored: str, password: str) -> bool:
    """Whether the password is the one behind a stored hash of a foreign kind."""
    secret = password.encode("utf-8", "surrogatepass")
    if stored.startswith(BCRYPT_SHA256_PREFIX):
        # As Django has it: a hexadecimal digest, which is never cut.
        return _is_bcrypt(
            stored.removeprefix(BCRYPT_SHA256_PREFIX), hashlib.sha256(secret).hexdigest().encode()
        )
    if stored.startswith("$2"):
        return _is_bcrypt(stored, secret)
    if stored.startswith("$pbkdf2"):
        return _is_pbkdf2(stored, secret)
    if stored.startswith("$scrypt"):
        return _is_scrypt(stored, secret)
    try:
        return _hasher.verify(stored, password)
    except (Argon2Error, InvalidHashError, UnicodeEncodeError):
        return False


def scheme_of(stored: str) -> str | None:
    """The kind and cost of a stored hash, or None when it is none that is known."""
    try:
        return parse_hash(stored).scheme
    except UnsupportedHash:
        return None


@cache
def dummy_imported_hash(scheme: str) -> str:
    """A stored hash of the scheme that no password is known for: it costs what the others of the scheme cost."""
    kind, *numbers = scheme.split(" ")
    salt, digest = b64(b"nobody's salt 16"), b64(b"no password has this digest 32 b")
    if kind in ("bcrypt", "bcrypt-sha256"):
        before = BCRYPT_SHA256_PREFIX if kind == "bcrypt-sha256" else ""
        return f"{before}$2b${int(numbers[0]):02}$abcdefghijklmnopqrstuu{'a' * 31}"
    if kind.startswith("pbkdf2-"):
        name = kind.removeprefix("pbkdf2-")
        return f"$pbkdf2-{name}$i={numbers[0]}${salt}${b64(b'x' * DIGEST_SIZES[name])}"
    if kind == "scrypt":
        return f"$scrypt$ln={numbers[0]},r={numbers[1]},p={numbers[2]}${salt}${digest}"
    return f"${kind}$v=19$m={numbers[0]},t={numbers[1]},p={numbers[2]}${salt}${digest}"


def _is_bcrypt(stored: str, secret: bytes) -> bool:
    try:
        # bcrypt knows 72 bytes of a password. The system that made the hash cut longer ones without a word, so they
        # are cut here too, or their owners could not sign in; from then on the whole password counts.
        return bcrypt.checkpw(secret[:72], stored.encode())
    except ValueError:
        return False


def _is_pbkdf2(stored: str, secret: bytes) -> bool:
    match = PBKDF2.fullmatch(stored)
    if match is None or match[1] is None:
        return False
    expected = unb64(match[4])
    made = hashlib.pbkdf2_hmac(match[1][1:], secret, unb64(match[3]), int(match[2]), len(expected))
    return hmac.compare_digest(made, expected)


def _is_scrypt(stored: str, secret: bytes) -> bool:
    match = SCRYPT.fullmatch(stored)
    if match is None:
        return False
    log_n, r, p = (int(match[number]) for number in (1, 2, 3))
    expected = unb64(match[5])
    # OpenSSL counts a little beside the blocks themselves.
    room = (128 * r << log_n) + 128 * r * p + (1 << 20)
    made = hashlib.scrypt(
        secret, salt=unb64(match[4]), n=1 << log_n, r=r, p=p, maxmem=room, dklen=len(expected)
    )
    return hmac.compare_digest(made, expected)
