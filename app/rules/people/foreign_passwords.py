"""Foreign passwords: verified against hashes that another system made, until a sign-in renews them with ours."""

from __future__ import annotations

import hashlib
import hmac
from functools import cache

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from app.rules.people.foreign_hashes import (
    DIGEST_SIZES,
    PBKDF2,
    SCRYPT,
    SHA256_FIRST,
    UnusableHash,
    b64,
    parse,
    unb64,
)

_hasher = PasswordHasher()


def is_foreign(stored: str) -> bool:
    """Whether the stored hash is of a kind that is never made here. Argon2 with other parameters is not told apart."""
    return not stored.startswith("$argon2")


def is_password(stored: str, password: str) -> bool:
    """Whether the password is the one behind a stored hash of a foreign kind."""
    secret = password.encode("utf-8", "surrogatepass")
    if stored.startswith(SHA256_FIRST):
        # As Django has it: a hexadecimal digest, which is never cut.
        return _is_bcrypt(stored.removeprefix(SHA256_FIRST), hashlib.sha256(secret).hexdigest().encode())
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
        return parse(stored).scheme
    except UnusableHash:
        return None


@cache
def dummy(scheme: str) -> str:
    """A stored hash of the scheme that no password is known for: it costs what the others of the scheme cost."""
    kind, *numbers = scheme.split(" ")
    salt, digest = b64(b"nobody's salt 16"), b64(b"no password has this digest 32 b")
    if kind in ("bcrypt", "bcrypt-sha256"):
        before = SHA256_FIRST if kind == "bcrypt-sha256" else ""
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
