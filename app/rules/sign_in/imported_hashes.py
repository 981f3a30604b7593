"""Imported password hashes of other systems, which are stored as they are until their owner signs in.

``parse_hash`` reads the formats that other systems export and returns the stored form, which
``verify_imported_password`` checks. A hash states its own cost, so the importer decides what each
sign-in costs: hashes beyond about one second of a core or 128 MiB are rejected, and so are hashes that are
too cheap to resist guessing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec import Struct

from app.rules.fields import FieldProblem
from app.rules.languages.translation import lazy_gettext

MAX_STORED_LENGTH = 255
"""Characters of a stored hash, the size of its column."""
BCRYPT_COSTS = range(8, 15)
"""A cost of 14 takes one second of a core."""
PBKDF2_ITERATIONS = range(1_000, 2_000_001)
"""For the first block, the only one that is derived. The maximum takes 0.25 to 0.8 seconds."""
MAX_MEMORY_KIB = 128 * 1024
"""Every core verifies one password at a time, so a process needs this once per core."""
MAX_ARGON2_WORK = 1024 * 1024
"""KiB times passes, which takes half a second."""
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
    r"\$scrypt\$ln=(\d{1,7}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/.]+)={0,2}\$([A-Za-z0-9+/.]+)={0,2}",
    re.ASCII,
)
FIREBASE = re.compile(
    r"\$firescrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})" + r"\$([A-Za-z0-9+/_-]+)={0,2}" * 4, re.ASCII
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
# Prefixes that Django adds to hashes in other formats, and how those formats begin.
_DJANGO_WRAPPED = {"argon2": "$argon2", "bcrypt$": "$2", "bcrypt_sha256$": "$2"}
_DOCUMENT_FIELDS = frozenset({"algorithm", "iterations", "salt", "value"})
# A credential in the export of a Keycloak realm. The first two are JSON texts.
_CREDENTIAL_FIELDS = frozenset(
    {"credentialData", "secretData", "type", "id", "userLabel", "createdDate", "priority", "temporary"}
)
_ARGON2_VERSIONS = {"1.3": 19, "1.0": 16}
_ALPHABETS = str.maketrans(".-_", "++/")
_hasher = PasswordHasher()


class UnsupportedHash(Exception):
    """The hash cannot be imported. ``problem`` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = FieldProblem(code, message)


class ImportedHash(Struct, frozen=True):
    """A hash in its stored form. ``scheme`` names its algorithm and cost."""

    stored: str
    scheme: str


def parse_hash(exported: Any) -> ImportedHash:
    """Return the hash to store for one exported by another system.

    Accepts strings in the format of bcrypt, PHC (argon2, PBKDF2, scrypt), passlib, Django, Werkzeug or Firebase (as
    Ory writes it), Keycloak's credentials as in the export of a realm, and ``{"algorithm": "pbkdf2-sha256",
    "iterations": 27500, "salt": "<base64>", "value": "<base64>"}``. Raises UnsupportedHash naming the limit that was
    exceeded.
    """
    if isinstance(exported, Mapping):
        is_credential = "credentialData" in exported or "secretData" in exported
        return _of_credential(exported) if is_credential else _of_document(exported)
    if not isinstance(exported, str):
        raise UnsupportedHash(
            "wrong_type", "A password hash must be a string, or an object in Keycloak's format."
        )
    if len(exported) > 2 * MAX_STORED_LENGTH:
        raise UnsupportedHash(
            "too_long",
            lazy_gettext("A password hash can have at most %(max)s characters.", max=2 * MAX_STORED_LENGTH),
        )
    for form, read in _FORMS:
        match = form.fullmatch(exported)
        if match is not None:
            return read(*match.groups())
    for prefix, inner in _DJANGO_WRAPPED.items():
        if exported.startswith(f"{prefix}{inner}"):
            return _of_django(prefix, exported.removeprefix(prefix))
    if exported.startswith(f"{BCRYPT_SHA256_PREFIX}$2"):
        return _of_django("bcrypt_sha256$", exported.removeprefix(BCRYPT_SHA256_PREFIX))
    raise UnsupportedHash(
        "unknown_hash",
        "This password hash is not supported. Use bcrypt, PBKDF2, argon2 or scrypt in a documented format. "
        "Without a hash, the user chooses a password by a link.",
    )


def unb64(text: str) -> bytes:
    """Decode base64, padded or not, also in passlib's alphabet and that of URLs. Raises UnsupportedHash."""
    plain = text.translate(_ALPHABETS).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnsupportedHash(
            "malformed_hash", "The salt or the digest of this hash is not valid base64."
        ) from error


def b64(value: bytes) -> str:
    """Encode as base64 without padding, as PHC strings do."""
    return base64.b64encode(value).decode().rstrip("=")


def is_imported(stored: str) -> bool:
    """Return whether the stored hash has a scheme that only imports use.

    Argon2 hashes always count as native.
    """
    return not stored.startswith("$argon2")


def verify_imported_password(stored: str, password: str) -> bool:
    """Return whether the password matches a stored hash of an imported scheme."""
    secret = password.encode("utf-8", "surrogatepass")
    if stored.startswith(BCRYPT_SHA256_PREFIX):
        # Django hashes the hexadecimal digest, which is below bcrypt's 72 bytes.
        return _is_bcrypt(
            stored.removeprefix(BCRYPT_SHA256_PREFIX), hashlib.sha256(secret).hexdigest().encode()
        )
    if stored.startswith("$2"):
        return _is_bcrypt(stored, secret)
    if stored.startswith("$pbkdf2"):
        return _is_pbkdf2(stored, secret)
    if stored.startswith("$scrypt"):
        return _is_scrypt(stored, secret)
    if stored.startswith("$firescrypt"):
        return _is_firebase(stored, secret)
    try:
        return _hasher.verify(stored, password)
    except (Argon2Error, InvalidHashError, UnicodeEncodeError):
        return False


def scheme_of(stored: str) -> str | None:
    """Return the scheme and cost of a stored hash, or None for an unknown one."""
    try:
        return parse_hash(stored).scheme
    except UnsupportedHash:
        return None


@cache
def dummy_imported_hash(scheme: str) -> str:
    """Return a stored hash of the scheme that no password is known for, with the cost of the scheme."""
    kind, *numbers = scheme.split(" ")
    salt, digest = b64(b"unused's salt 16"), b64(b"no password has this digest 32 b")
    if kind in ("bcrypt", "bcrypt-sha256"):
        before = BCRYPT_SHA256_PREFIX if kind == "bcrypt-sha256" else ""
        return f"{before}$2b${int(numbers[0]):02}$abcdefghijklmnopqrstuu{'a' * 31}"
    if kind.startswith("pbkdf2-"):
        name = kind.removeprefix("pbkdf2-")
        return f"$pbkdf2-{name}$i={numbers[0]}${salt}${b64(b'x' * DIGEST_SIZES[name])}"
    if kind == "scrypt":
        return f"$scrypt$ln={numbers[0]},r={numbers[1]},p={numbers[2]}${salt}${digest}"
    if kind == "firescrypt":
        return f"$firescrypt$ln={numbers[0]},r={numbers[1]},p={numbers[2]}${salt}${digest}$Bw${digest}"
    return f"${kind}$v=19$m={numbers[0]},t={numbers[1]},p={numbers[2]}${salt}${digest}"


def _of_bcrypt(exported: str, exponent: str) -> ImportedHash:
    cost = int(exponent)
    if cost not in BCRYPT_COSTS:
        raise _out_of_range("bcrypt cost", cost, BCRYPT_COSTS)
    return ImportedHash(exported, f"bcrypt {cost}")


def _of_argon2(exported: str, kind: str, m: str, t: str, p: str, salt: str, digest: str) -> ImportedHash:
    memory, passes, parallelism = int(m), int(t), int(p)
    if not 1 <= parallelism <= MAX_ARGON2_PARALLELISM:
        raise _out_of_range("argon2 p", parallelism, range(1, MAX_ARGON2_PARALLELISM + 1))
    if not max(1024, 8 * parallelism) <= memory <= MAX_MEMORY_KIB:
        raise _out_of_range("argon2 m (KiB)", memory, range(max(1024, 8 * parallelism), MAX_MEMORY_KIB + 1))
    if passes < 1 or memory * passes > MAX_ARGON2_WORK:
        raise _out_of_range(f"argon2 t (m={memory})", passes, range(1, MAX_ARGON2_WORK // memory + 1))
    _require_size(unb64(salt), "salt", SALT_BYTES)
    _require_size(unb64(digest), "digest", DIGEST_BYTES)
    return ImportedHash(exported, f"argon2{kind} {memory} {passes} {parallelism}")


def _of_pbkdf2(name: str, iterations: int, salt: bytes, digest: bytes) -> ImportedHash:
    if iterations not in PBKDF2_ITERATIONS:
        raise _out_of_range("PBKDF2 iterations", iterations, PBKDF2_ITERATIONS)
    _require_size(salt, "salt", SALT_BYTES)
    _require_size(digest, "digest", DIGEST_BYTES)
    # PBKDF2 derives each block independently, so comparing the first one is as secure and costs less.
    first = digest[: DIGEST_SIZES[name]]
    stored = f"$pbkdf2-{name}$i={iterations}${b64(salt)}${b64(first)}"
    return ImportedHash(stored, f"pbkdf2-{name} {iterations}")


def _of_scrypt(log_n: int, r: int, p: int, salt: bytes, digest: bytes) -> ImportedHash:
    _require_scrypt_cost(log_n, r, p)
    _require_size(salt, "salt", SALT_BYTES)
    _require_size(digest, "digest", DIGEST_BYTES)
    return ImportedHash(
        f"$scrypt$ln={log_n},r={r},p={p}${b64(salt)}${b64(digest)}", f"scrypt {log_n} {r} {p}"
    )


def _require_scrypt_cost(log_n: int, r: int, p: int) -> None:
    if log_n not in SCRYPT_LOG_N:
        raise _out_of_range("scrypt ln", log_n, SCRYPT_LOG_N)
    memory = (r << log_n) // 8
    # RFC 7914 section 2 requires N below 2^(16 r), and implementations enforce it.
    min_r = log_n // 16 + 1
    if r < min_r or memory > MAX_MEMORY_KIB:
        raise _out_of_range(f"scrypt r (ln={log_n})", r, range(min_r, (MAX_MEMORY_KIB * 8 >> log_n) + 1))
    if p < 1 or memory * p > MAX_SCRYPT_WORK:
        raise _out_of_range(
            f"scrypt p (ln={log_n}, r={r})", p, range(1, MAX_SCRYPT_WORK // max(1, memory) + 1)
        )


def _of_phc_pbkdf2(name: str | None, iterations: str, salt: str, digest: str) -> ImportedHash:
    return _of_pbkdf2((name or "-sha1")[1:], int(iterations), unb64(salt), unb64(digest))


def _of_phc_scrypt(log_n: str, r: str, p: str, salt: str, digest: str) -> ImportedHash:
    # Ory writes N itself. No N that is allowed is as small as a logarithm.
    exponent = int(log_n) if len(log_n) <= 2 else _log_of(log_n)
    return _of_scrypt(exponent, int(r), int(p), unb64(salt), unb64(digest))


def _of_firebase(
    log_n: str, r: str, p: str, salt: str, digest: str, separator: str, key: str
) -> ImportedHash:
    _require_scrypt_cost(int(log_n), int(r), int(p))
    salt_bytes, digest_bytes, separator_bytes, key_bytes = map(unb64, (salt, digest, separator, key))
    _require_size(salt_bytes, "salt", SALT_BYTES)
    _require_size(digest_bytes, "digest", DIGEST_BYTES)
    _require_size(key_bytes, "signer key", range(len(digest_bytes), len(digest_bytes) + 1))
    cost = f"ln={int(log_n)},r={int(r)},p={int(p)}"
    stored = "$".join(
        ("", "firescrypt", cost, *map(b64, (salt_bytes, digest_bytes, separator_bytes, key_bytes)))
    )
    if len(stored) > MAX_STORED_LENGTH:
        raise UnsupportedHash("malformed_hash", "The salt and the salt separator of this hash are too long.")
    return ImportedHash(stored, f"firescrypt {int(log_n)} {int(r)} {int(p)}")


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


def _of_document(exported: Mapping[str, Any]) -> ImportedHash:
    name = exported.get("algorithm")
    iterations, salt, digest = exported.get("iterations"), exported.get("salt"), exported.get("value")
    if exported.keys() != _DOCUMENT_FIELDS or not isinstance(salt, str) or not isinstance(digest, str):
        fields = ", ".join(sorted(_DOCUMENT_FIELDS))
        message = lazy_gettext(
            "A hash object must have exactly the fields %(fields)s, or Keycloak's credentialData and secretData.",
            fields=fields,
        )
        raise UnsupportedHash("unknown_hash", message)
    if name not in ("pbkdf2", "pbkdf2-sha256", "pbkdf2-sha512"):
        message = lazy_gettext(
            "The algorithm must be pbkdf2, pbkdf2-sha256 or pbkdf2-sha512. Write argon2 hashes in PHC format, or send "
            "Keycloak's credentialData and secretData."
        )
        raise UnsupportedHash("unknown_hash", message)
    if isinstance(iterations, bool) or not isinstance(iterations, int):
        raise UnsupportedHash("wrong_type", "The iterations must be a number.")
    return _of_pbkdf2(name.partition("-")[2] or "sha1", iterations, unb64(salt), unb64(digest))


def _of_credential(exported: Mapping[str, Any]) -> ImportedHash:
    """Read a credential as Keycloak exports it, in which most numbers are lists with one text."""
    if not exported.keys() <= _CREDENTIAL_FIELDS or exported.get("type", "password") != "password":
        message = lazy_gettext(
            "This is not a password as Keycloak exports it, with its credentialData and secretData."
        )
        raise UnsupportedHash("unknown_hash", message)
    data, secret = (_nested(exported.get(name)) for name in ("credentialData", "secretData"))
    iterations, salt, value = data.get("hashIterations"), secret.get("salt"), secret.get("value")
    if data.get("algorithm") != "argon2":
        return _of_document(
            {"algorithm": data.get("algorithm"), "iterations": iterations, "salt": salt, "value": value}
        )
    parameters = data.get("additionalParameters")
    kind, version, memory, lanes = (
        _first(parameters, name) for name in ("type", "version", "memory", "parallelism")
    )
    plain_salt, plain_value = (str(text).rstrip("=") for text in (salt, value))
    number = _ARGON2_VERSIONS.get(version)
    text = f"$argon2{kind}$v={number}$m={memory},t={iterations},p={lanes}${plain_salt}${plain_value}"
    match = _ARGON2.fullmatch(text)
    if match is None:
        message = lazy_gettext(
            "The parameters, the salt or the value of this argon2 hash are not as Keycloak exports them."
        )
        raise UnsupportedHash("malformed_hash", message)
    return _of_argon2(*match.groups())


def _nested(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        message = lazy_gettext(
            "credentialData and secretData must be JSON objects, as Keycloak exports them."
        )
        raise UnsupportedHash("malformed_hash", message)
    return found


def _first(parameters: Any, name: str) -> str:
    value = parameters.get(name) if isinstance(parameters, Mapping) else None
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, str) else ""


def _out_of_range(what: str, value: int, allowed: range) -> UnsupportedHash:
    low, high = allowed.start, allowed.stop - 1
    code = "hash_too_cheap" if value < low else "hash_too_expensive"
    message = lazy_gettext(
        "%(what)s is %(value)s. It must be between %(low)s and %(high)s.",
        what=what, value=value, low=low, high=high,
    )  # fmt: skip
    return UnsupportedHash(code, message)


def _require_size(value: bytes, what: str, allowed: range) -> None:
    if len(value) not in allowed:
        low, high = allowed.start, allowed.stop - 1
        message = lazy_gettext(
            "The part %(what)s of this hash has %(size)s bytes. It must have %(low)s to %(high)s.",
            what=what, size=len(value), low=low, high=high,
        )  # fmt: skip
        raise UnsupportedHash("malformed_hash", message)


def _log_of(n: str) -> int:
    number = int(n)
    if number < 2 or number & (number - 1):
        raise UnsupportedHash("malformed_hash", "scrypt's N must be a power of two.")
    return number.bit_length() - 1


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise UnsupportedHash(
            "malformed_hash", "The digest of this hash is not valid hexadecimal."
        ) from error


def _is_bcrypt(stored: str, secret: bytes) -> bool:
    try:
        # bcrypt uses 72 bytes of a password. The other system truncated longer ones silently, so they are truncated
        # here too, or their owners could not sign in. The renewed hash covers the whole password.
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
    expected = unb64(match[5])
    made = _scrypt(secret, unb64(match[4]), (match[1], match[2], match[3]), len(expected))
    return hmac.compare_digest(made, expected)


def _is_firebase(stored: str, secret: bytes) -> bool:
    """Verify Firebase's own scheme: the project's signer key, encrypted with what scrypt derives, is the digest."""
    match = FIREBASE.fullmatch(stored)
    if match is None:
        return False
    salt, expected, separator, signer_key = (unb64(match[number]) for number in (4, 5, 6, 7))
    key = _scrypt(secret, salt + separator, (match[1], match[2], match[3]), 32)
    encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    return hmac.compare_digest(encryptor.update(signer_key) + encryptor.finalize(), expected)


def _scrypt(secret: bytes, salt: bytes, cost: tuple[str, str, str], size: int) -> bytes:
    log_n, r, p = (int(number) for number in cost)
    # OpenSSL needs a little memory in addition to the blocks.
    max_memory = (128 * r << log_n) + 128 * r * p + (1 << 20)
    return hashlib.scrypt(secret, salt=salt, n=1 << log_n, r=r, p=p, maxmem=max_memory, dklen=size)


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., ImportedHash]], ...] = (
    (_BCRYPT, _of_bcrypt),
    (_ARGON2, _of_argon2),
    (PBKDF2, _of_phc_pbkdf2),
    (SCRYPT, _of_phc_scrypt),
    (FIREBASE, _of_firebase),
    (_DJANGO_PBKDF2, _of_django_pbkdf2),
    (_DJANGO_SCRYPT, _of_django_scrypt),
    (_WERKZEUG_PBKDF2, _of_werkzeug_pbkdf2),
    (_WERKZEUG_SCRYPT, _of_werkzeug_scrypt),
)
