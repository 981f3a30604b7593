"""Sealing: bytes are unsealed only unchanged, with their key and in their place (SE-6)."""

from __future__ import annotations

import pytest

from app.rules.sealing import UnsealError, derive, seal, unseal
from tests.support.cases import each

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
PLACE = b"1|0abcd123|credential|7"


def test_unseal_returns_the_plaintext() -> None:
    assert unseal(KEY, seal(KEY, b"a secret", PLACE), PLACE) == b"a secret"
    assert unseal(KEY, seal(KEY, b"", PLACE), PLACE) == b""


@each(
    ("key", "place"),
    [(OTHER_KEY, PLACE), (KEY, b""), (KEY, PLACE + b" "), (KEY, b"1|0abcd123|credential|8")],
    ids=["another key", "no place", "a longer place", "another row"],
)
def test_unseal_with_other_associated_data_fails(key: bytes, place: bytes) -> None:
    with pytest.raises(UnsealError):
        unseal(key, seal(KEY, b"a secret", PLACE), place)


def test_every_changed_bit_is_detected() -> None:
    sealed = seal(KEY, b"a secret", PLACE)
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(UnsealError):
                unseal(KEY, bytes(changed), PLACE)


@each("length", [0, 1, 5, 12, 13, 20, 28])
def test_truncated_bytes_cannot_be_unsealed(length: int) -> None:
    with pytest.raises(UnsealError):
        unseal(KEY, seal(KEY, b"a secret", PLACE)[:length], PLACE)


def test_sealing_twice_gives_different_bytes() -> None:
    assert len({seal(KEY, b"a secret", PLACE) for _ in range(200)}) == 200


def test_sealed_bytes_do_not_contain_the_plaintext() -> None:
    assert b"a secret" not in seal(KEY, b"a secret", PLACE)


def test_each_purpose_has_a_different_subkey() -> None:
    labels = ["cursors", "refresh-token-tag", "anonymous cookie", "cursor", ""]
    subkeys = {derive(KEY, label) for label in labels}
    assert len(subkeys) == len(labels)
    assert {len(subkey) for subkey in subkeys} == {32}
    assert derive(KEY, "cursors") == derive(KEY, "cursors") != derive(OTHER_KEY, "cursors")
