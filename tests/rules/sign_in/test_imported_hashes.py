"""Hashes of other systems: parsed in their export formats and verified, with a bounded cost."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from typing import Any

import bcrypt
import pytest
from argon2 import PasswordHasher, Type
from argon2.low_level import hash_secret_raw
from werkzeug.security import generate_password_hash

from app.rules.sign_in import imported_hashes, passwords
from app.rules.sign_in.imported_hashes import MAX_STORED_LENGTH, UnsupportedHash, parse_hash
from tests.support.cases import each

RFC_7914 = bytes.fromhex(
    "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
    "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
)
PASSWORD = "seven tall herons – at the weir"
SALT = b"sixteen bytes ok"
DJANGO = "0123456789abcdefghijkl"


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def phc(value: bytes) -> str:
    return b64(value).rstrip("=")


def derived(name: str, iterations: int, salt: bytes = SALT, size: int | None = None) -> bytes:
    return hashlib.pbkdf2_hmac(name, PASSWORD.encode(), salt, iterations, size)


def argon2(kind: Type, **changes: int) -> str:
    return PasswordHasher(
        **({"time_cost": 3, "memory_cost": 8192, "parallelism": 4} | changes), type=kind
    ).hash(PASSWORD)


# The example of https://github.com/firebase/scrypt.
FIREBASE = (
    "$firescrypt$ln=14,r=8,p=1$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZ"
    "ilo78198JAdRuid5lQ==$Bw==$jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA=="
)


def keycloak_credential(algorithm: str, iterations: int, value: bytes, **parameters: str) -> dict[str, Any]:
    """A credential as in the export of a realm."""
    added = {name: [value] for name, value in parameters.items()}
    data = {"hashIterations": iterations, "algorithm": algorithm, "additionalParameters": added}
    secret = {"value": b64(value), "salt": b64(SALT), "additionalParameters": {}}
    return {
        "id": "2c3e",
        "type": "password",
        "createdDate": 1700000000000,
        "secretData": json.dumps(secret),
        "credentialData": json.dumps(data),
    }


@cache
def keycloak_argon2_hash() -> bytes:
    return hash_secret_raw(PASSWORD.encode(), SALT, 5, 7168, 1, 32, Type.ID)


def keycloak_argon2(**changes: str) -> dict[str, Any]:
    value = keycloak_argon2_hash()
    parameters = {"hashLength": "32", "memory": "7168", "type": "id", "version": "1.3", "parallelism": "1"}
    return keycloak_credential("argon2", 5, value, **(parameters | changes))


# Hashes from manuals of other programs and from standards, with their passwords.
PUBLISHED = [
    ("$2a$12$EXRkfkdmXn2gzds2SSitu.MW9.gAVqa9eLS1//RYtYCmB1eLHg.9q", "abc"),
    (
        "$pbkdf2-sha256$6400$.6UI/S.nXIk8jcbdHx3Fhg$98jZicV16ODfEsEZeYPGHU3kbrUrvUEXOPimVSQDD44",
        "password",
    ),
    (f"$scrypt$ln=14,r=8,p=1${phc(b'SodiumChloride')}${phc(RFC_7914)}", "pleaseletmein"),
    (f"$scrypt$ln=16384,r=8,p=1${b64(b'SodiumChloride')}${b64(RFC_7914)}", "pleaseletmein"),
    (FIREBASE, "user1password"),
    (FIREBASE.replace("+", "-").replace("/", "_").rstrip("="), "user1password"),
]
MADE: dict[str, Any] = {
    "bcrypt 2b": bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(8)).decode(),
    "bcrypt 2y, of PHP": bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(8)).decode().replace("$2b", "$2y"),
    "argon2i": argon2(Type.I),
    "argon2d": argon2(Type.D),
    "argon2id": argon2(Type.ID),
    "PHC PBKDF2": f"$pbkdf2-sha512$i=1000,l=64${phc(SALT)}${phc(derived('sha512', 1000))}",
    "passlib SHA-1": f"$pbkdf2$1000${phc(SALT).replace('+', '.')}${phc(derived('sha1', 1000)).replace('+', '.')}",
    "Django PBKDF2": f"pbkdf2_sha256$1200${DJANGO}${b64(derived('sha256', 1200, DJANGO.encode()))}",
    "Django bcrypt": "bcrypt$" + bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(8)).decode(),
    "Django bcrypt_sha256": "bcrypt_sha256$"
    + bcrypt.hashpw(hashlib.sha256(PASSWORD.encode()).hexdigest().encode(), bcrypt.gensalt(8)).decode(),
    "Django argon2": "argon2" + argon2(Type.ID),
    "Django scrypt": "scrypt$0123456789abcdefghijkl$16384$8$5$"
    + b64(
        hashlib.scrypt(
            PASSWORD.encode(), salt=b"0123456789abcdefghijkl", n=16384, r=8, p=5, maxmem=2**26, dklen=64
        )
    ),
    "Werkzeug PBKDF2": generate_password_hash(PASSWORD, "pbkdf2:sha256:1500"),
    "Werkzeug scrypt": generate_password_hash(PASSWORD, "scrypt:16384:8:1"),
    # Keycloak always derives 64 bytes, which are four blocks of SHA-1.
    "Keycloak PBKDF2": {
        "algorithm": "pbkdf2",
        "iterations": 1300,
        "salt": b64(SALT),
        "value": b64(derived("sha1", 1300, size=64)),
    },
    "Keycloak PBKDF2 SHA-256": {
        "algorithm": "pbkdf2-sha256",
        "iterations": 1300,
        "salt": b64(SALT),
        "value": b64(derived("sha256", 1300, size=64)),
    },
    "Keycloak credential": keycloak_credential("pbkdf2-sha512", 1300, derived("sha512", 1300, size=64)),
    "Keycloak argon2": keycloak_argon2(),
    "Keycloak object": {
        name: json.loads(keycloak_argon2()[name]) for name in ("credentialData", "secretData")
    },
}


# One of each form that is stored: the others are stored like one of these.
STORED_KINDS = ("bcrypt 2b", "argon2id", "PHC PBKDF2", "Django bcrypt_sha256", "Werkzeug scrypt")


@pytest.mark.slow
@each(("text", "password"), PUBLISHED)
def test_published_hash_is_verified(text: str, password: str) -> None:
    stored = parse_hash(text).stored
    assert passwords.verify_password(stored, password)
    assert not passwords.verify_password(stored, password + "x")


@pytest.mark.slow
@each("kind", MADE)
def test_imported_hash_is_verified_and_needs_rehash(kind: str) -> None:
    """PW-5: a sign-in replaces any imported hash."""
    found = parse_hash(MADE[kind])
    assert len(found.stored) <= MAX_STORED_LENGTH
    assert passwords.verify_password(found.stored, PASSWORD)
    assert not passwords.verify_password(found.stored, PASSWORD[:-1])
    assert not passwords.verify_password(found.stored, "")
    assert passwords.needs_rehash(found.stored)
    assert not passwords.needs_rehash(passwords.hash_password(PASSWORD))


@each("kind", MADE)
def test_stored_hash_parses_to_itself(kind: str) -> None:
    found = parse_hash(MADE[kind])
    assert parse_hash(found.stored) == found


def test_bcrypt_uses_72_bytes_and_renewed_hash_uses_all() -> None:
    long = "ä" * 40 + " and the rest of it"
    stored = bcrypt.hashpw(long.encode()[:72], bcrypt.gensalt(8)).decode()
    assert passwords.verify_password(stored, long)
    assert passwords.verify_password(stored, "ä" * 36)
    assert not passwords.verify_password(passwords.hash_password(long), "ä" * 36)


@pytest.mark.slow
@each("password", ["a\0b", "\ud800", "x" * 129, "x" * 128])
@each("exported", [*(MADE[kind] for kind in STORED_KINDS), FIREBASE])
def test_unusual_password_does_not_match_or_raise(exported: Any, password: str) -> None:
    assert passwords.verify_password(parse_hash(exported).stored, password) is False


TOO_MUCH = [
    ("$2b$15$" + "a" * 53, "hash_too_expensive", "8 and 14"),
    ("$2b$31$" + "a" * 53, "hash_too_expensive", "8 and 14"),
    ("$2b$04$" + "a" * 53, "hash_too_cheap", "8 and 14"),
    (f"$pbkdf2-sha256$i=2000001${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "2000000"),
    (f"$pbkdf2-sha256$i=999999999${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "2000000"),
    (f"$pbkdf2-sha256$i=999${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "1000"),
    (f"$argon2id$v=19$m=131073,t=1,p=1${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "131072"),
    (f"$argon2id$v=19$m=131072,t=9,p=1${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "1 and 8"),
    (f"$argon2id$v=19$m=65536,t=1,p=9${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "1 and 8"),
    (f"$argon2id$v=19$m=64,t=1,p=1${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "1024"),
    (f"$argon2id$v=19$m=65536,t=0,p=1${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "1 and"),
    (keycloak_argon2(memory="131073"), "hash_too_expensive", "131072"),
    (keycloak_credential("pbkdf2-sha256", 999, SALT), "hash_too_cheap", "1000"),
    (FIREBASE.replace("ln=14", "ln=18"), "hash_too_expensive", "10 and 17"),
    (f"$scrypt$ln=262144,r=8,p=1${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "10 and 17"),
    (f"$scrypt$ln=18,r=8,p=1${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "10 and 17"),
    (f"$scrypt$ln=17,r=9,p=1${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "2 and 8"),
    (f"$scrypt$ln=17,r=8,p=3${phc(SALT)}${phc(SALT)}", "hash_too_expensive", "1 and 2"),
    (f"$scrypt$ln=14,r=0,p=1${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "1 and"),
    (f"$scrypt$ln=16,r=1,p=1${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "2 and"),
    (f"$scrypt$ln=17,r=1,p=8${phc(SALT)}${phc(SALT)}", "hash_too_cheap", "2 and"),
]
MALFORMED: list[Any] = [
    *("", " ", "password", "5f4dcc3b5aa765d61d8327deb882cf99", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
    *("$1$abc$def", "$6$rounds=5000$salt$hash", "$2x$12$" + "a" * 53, "$2b$12$" + "a" * 52, "$2b$12$" + "!" * 53),
    *("$2b$1٢$" + "a" * 53, "bcrypt$bcrypt$$2b$12$" + "a" * 53, "bcrypt_sha256$" + argon2(Type.ID)),
    *("pbkdf2_sha256$1000$12345678$!!!!", f"pbkdf2_md5$1000$12345678${b64(SALT)}", "x" * 100_000),
    *("$pbkdf2-sha256$i=1000$AAA$" + phc(SALT), f"$pbkdf2-sha256$i=1000${phc(SALT)}$A", "scrypt:1000:8:1$12345678$00"),
    *(f"$argon2id$v=19$m=65536,t=1,p=1${phc(b'short')}${phc(SALT)}", f"$argon2id$v=20$m=65536,t=1,p=1$${phc(SALT)}"),
    *(None, 5, True, [], {}, {"algorithm": "pbkdf2-sha256"}, b"$2b$"),
    {"algorithm": "md5", "iterations": 1000, "salt": b64(SALT), "value": b64(SALT)},
    {"algorithm": "pbkdf2-sha256", "iterations": "1000", "salt": b64(SALT), "value": b64(SALT)},
    {"algorithm": "pbkdf2-sha256", "iterations": True, "salt": b64(SALT), "value": b64(SALT)},
    {"algorithm": "pbkdf2-sha256", "iterations": 1000, "salt": "%", "value": b64(SALT)},
    {"algorithm": "pbkdf2-sha256", "iterations": 1000, "salt": b64(SALT), "value": b64(SALT), "more": 1},
    *(keycloak_argon2(version="1.4"), keycloak_argon2(memory="x"), keycloak_argon2(type="idx")),
    *(keycloak_credential("md5", 1000, SALT), keycloak_argon2() | {"type": "otp"}, keycloak_argon2() | {"more": 1}),
    *({"credentialData": "{", "secretData": "{}"}, {"credentialData": "[]", "secretData": "{}"}, {"secretData": "{}"}),
    *(FIREBASE[:-4], FIREBASE.replace("Bw==", "A" * 60), FIREBASE.replace("ln=14", "ln=014")),
    f"$scrypt$ln=16385,r=8,p=1${phc(SALT)}${phc(SALT)}",
]  # fmt: skip


@each(("text", "code", "bound"), TOO_MUCH)
def test_hash_with_cost_out_of_range_is_rejected_with_the_range(text: str, code: str, bound: str) -> None:
    """PW-6: imported hashes determine the cost of sign-ins, at most a second of a core and 128 MiB."""
    with pytest.raises(UnsupportedHash) as refusal:
        parse_hash(text)
    assert refusal.value.problem.code == code
    assert bound in refusal.value.problem.message


@each("sent", MALFORMED)
def test_malformed_hash_is_rejected_with_code(sent: Any) -> None:
    with pytest.raises(UnsupportedHash) as refusal:
        parse_hash(sent)
    assert refusal.value.problem.code in {"unknown_hash", "malformed_hash", "wrong_type", "too_long"}


@pytest.mark.slow
@each("kind", MADE)
def test_dummy_hash_has_the_scheme_and_matches_no_password(kind: str) -> None:
    """EN-2: it is really computed, while a malformed one would be rejected immediately."""
    scheme = parse_hash(MADE[kind]).scheme
    stored = imported_hashes.dummy_imported_hash(scheme)
    assert parse_hash(stored).scheme == scheme
    assert not imported_hashes.verify_imported_password(stored, PASSWORD)


@pytest.mark.slow
def test_most_expensive_hash_is_computed() -> None:
    most_expensive = ["bcrypt 14", "pbkdf2-sha512 2000000", "argon2id 131072 8 1", "scrypt 17 8 2"]
    for scheme in most_expensive:
        assert not imported_hashes.verify_imported_password(
            imported_hashes.dummy_imported_hash(scheme), PASSWORD
        ), scheme
