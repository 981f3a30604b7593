"""The format of every secret, and what is rejected without a query (TK-1)."""

from __future__ import annotations

import hashlib
import re
import zlib

from app.rules.identifiers import (
    ACCESS_TOKEN,
    AUTHORIZATION_CODE,
    AUTHORIZATION_REQUEST,
    CLIENT_SECRET,
    EMAIL_VERIFICATION,
    INVITATION,
    PASSWORD_RESET,
    REFRESH_TOKEN,
    SESSION,
    SETUP,
    ParsedToken,
    digest,
    has_valid_tag,
    hint,
    new_id,
    new_refresh_token,
    new_routing_key,
    new_token,
    parse_token,
)
from tests.support.cases import each

KINDS = (
    *(CLIENT_SECRET, ACCESS_TOKEN, AUTHORIZATION_CODE, SESSION),
    *(AUTHORIZATION_REQUEST, INVITATION, SETUP, PASSWORD_RESET, EMAIL_VERIFICATION),
)
KEY = "0abcd123"
TAG_KEY = b"k" * 32


def checked(body: str) -> str:
    """Add a valid checksum, as anyone can."""
    return f"{body}{zlib.crc32(body.encode()):08x}"


@each("kind", KINDS)
def test_token_names_its_kind_and_organization(kind: str) -> None:
    token = new_token(kind, KEY)
    assert parse_token(token) == ParsedToken(kind, KEY)
    assert re.fullmatch(r"gth_[a-z]{2}_[A-Za-z0-9_-]+", token), "SE-1: form-decoding cannot change it"


def test_token_has_256_random_bits() -> None:
    """CD-1, TK-1."""
    tokens = {new_token(ACCESS_TOKEN, KEY) for _ in range(200)}
    assert len(tokens) == 200
    assert {len(token) for token in tokens} == {len("gth_at_") + 8 + 43 + 8}


def test_refresh_token_names_its_grant() -> None:
    grant = new_id()
    token = new_refresh_token(KEY, grant, TAG_KEY)
    assert parse_token(token) == ParsedToken(REFRESH_TOKEN, KEY, grant)


def test_only_the_digest_of_the_whole_token_is_stored() -> None:
    """CD-1, TK-2."""
    token = new_token(CLIENT_SECRET, KEY)
    assert digest(token) == hashlib.sha256(token.encode()).digest()
    assert hint(token) == token[-12:-8]
    assert len(hint(token)) == 4


@each("make", [lambda: new_token(ACCESS_TOKEN, KEY), lambda: new_refresh_token(KEY, new_id(), TAG_KEY)])
def test_every_changed_character_is_detected(make) -> None:
    token = make()
    for place, char in enumerate(token):
        for other in ("a", "Z", "0", "-", "é", " ", "\n"):
            if other != char:
                assert parse_token(token[:place] + other + token[place + 1 :]) is None


GOOD = new_token(ACCESS_TOKEN, KEY)
NOT_OURS = {
    "empty": "",
    "a word": "secret",
    "only the prefix": "gth_",
    "a line feed after it": GOOD + "\n",
    "a space before it": " " + GOOD,
    "cut short": GOOD[:-1],
    "twice": GOOD * 2,
    "upper case": GOOD.upper(),
    "an unknown kind": checked(f"gth_zz_{KEY}" + "A" * 43),
    "a routing key with an l": checked("gth_at_labcd123" + "A" * 43),
    "42 random characters": checked(f"gth_at_{KEY}" + "A" * 42),
    "44 random characters": checked(f"gth_at_{KEY}" + "A" * 44),
    "an upper-case checksum": GOOD[:-8] + GOOD[-8:].upper() if GOOD[-8:] != GOOD[-8:].upper() else "",
    "very long": "gth_at_" + "A" * 100_000,
    "non-ASCII digits": GOOD[:-1] + "\u0663",
    "NUL inside": GOOD[:20] + "\0" + GOOD[21:],
    "a refresh token whose grant is not a 128-bit number": checked(f"gth_rt_{KEY}" + "z" * 26 + "A" * 54),
    "a refresh token without a grant": checked(f"gth_rt_{KEY}" + "A" * 43),
}


@each("text", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_malformed_token_is_none(text: str) -> None:
    assert parse_token(text) is None


def test_forged_refresh_token_has_an_invalid_tag() -> None:
    """RF-4: only tokens of this instance count as reuse and revoke a family."""
    own = new_refresh_token(KEY, new_id(), TAG_KEY)
    assert has_valid_tag(own, TAG_KEY)
    assert not has_valid_tag(own, b"x" * 32)
    forged = checked(own[:-19] + "A" * 11)
    assert parse_token(forged) is not None
    assert not has_valid_tag(forged, TAG_KEY)


def test_tag_covers_organization_grant_and_randomness() -> None:
    own = new_refresh_token(KEY, new_id(), TAG_KEY)
    for place in range(len("gth_rt_"), len(own) - 19):
        changed = "b" if own[place] != "b" else "c"
        moved = checked(own[:place] + changed + own[place + 1 : -8])
        assert not has_valid_tag(moved, TAG_KEY), place


def test_routing_keys_differ() -> None:
    assert len({new_routing_key() for _ in range(500)}) == 500
