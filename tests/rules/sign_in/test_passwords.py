"""Password rules: what is accepted, and hashing."""

from __future__ import annotations

import unicodedata

import pytest
from argon2 import PasswordHasher

from app.rules.sign_in import passwords
from tests.support.cases import each

POLICY = {"enabled": True, "min_length": 12, "block_common": True, "block_personal": True}


def codes(password: str, policy=POLICY, personal=()) -> list[str]:
    return [error.code for error in passwords.find_password_errors(password, policy, personal=personal)]


@each(
    "password",
    [
        "correct-lantern-seventeen",
        "vier Elche tanzen leise",
        "Kj7#pQ2vXz9w",
        "ключ под старым ковриком",
        "mmxgtwplrvbq",
        "the quick grey heron naps",
        "🦒🦓🐘🦛🦏🐪 zoo visit",
        "x" * 4 + "kz8-wq2-ltb",
    ],
)
def test_strong_password_is_accepted_with_any_characters(password):
    """PW-2: there are no composition rules."""
    assert codes(password) == []


@each(
    "password",
    [
        "password1234",
        "Password123!",
        "P@ssw0rd!2026",
        "passwordpassword",
        "Summer2026!!",
        "qwertyuiop12",
        "1q2w3e4r5t6y",
        "1qaz2wsx3edc",
        "123456789012",
        "abcdefghijkl",
        "aaaaaaaaaaaa",
        "abcabcabcabc",
        "121212121212",
        "iloveyou2026",
        "letmeinletmein",
        "admin-admin-1",
        "Welcome_2026",
        "dragonmaster1",
        "m0nkeym0nkey",
        "qwertyasdfgh",
        "98765432109876",
    ],
)
def test_common_password_is_rejected(password):
    assert codes(password) == ["too_common"]


def test_common_password_is_accepted_without_the_policy():
    assert codes("password1234", {**POLICY, "block_common": False}) == []


@each(
    ("password", "personal"),
    [
        ("adalovelace1815", ["Ada Lovelace", "ada@acme.com"]),
        ("acmecorp-ada-42", ["Acme Corp", "Ada"]),
        ("ADA.LOVELACE.99", ["ada.lovelace@acme.com"]),
        ("globex!globex!77", ["Globex"]),
    ],
)
def test_personal_password_is_rejected(password, personal):
    assert codes(password, personal=personal) == ["too_personal"]
    assert codes(password, {**POLICY, "block_personal": False}, personal) == []


def test_long_personal_text_is_cut_before_it_is_normalized(monkeypatch):
    """Sorting 32,000 combining characters of a name that nobody has checked yet takes seconds."""
    lengths, normalize = [], unicodedata.normalize

    def record(form: str, text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", record)
    name = "Ada" + "\u0300" * 16_000 + "\u0316" * 16_000
    assert codes("seventeen lanterns", personal=[name]) == []
    assert max(lengths) <= passwords.MAX_PERSONAL_LENGTH


def test_personal_word_in_long_password_is_accepted():
    assert codes("ada likes seventeen lanterns", personal=["Ada Lovelace"]) == []


def test_minimum_length_is_configurable_and_at_least_eight():
    """PW-1."""
    assert codes("tq8w-vz3m") == ["too_short"]
    assert codes("tq8w-vz3m", {**POLICY, "min_length": 8}) == []
    assert codes("tq8w-vz", {**POLICY, "min_length": 3}) == ["too_short"]


def test_password_is_limited_to_128_characters():
    """PW-2: and never truncated."""
    longest = ("lantern heron %d " * 20 % tuple(range(20)))[:128]
    assert codes(longest) == []
    assert codes(longest + "x") == ["too_long"]


def test_control_characters_and_lone_surrogates_are_rejected():
    assert codes("seventeen\x00lanterns") == ["invalid_characters"]
    assert codes("seventeen\ud800lanterns") == ["invalid_characters"]


@pytest.mark.usefixtures("real_hashes")
def test_hash_uses_argon2id_with_owasp_parameters():
    """PW-5, EN-2."""
    assert passwords.hash_password("seventeen lanterns").startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert passwords.dummy_hash().startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_password_is_verified_exactly():
    """PW-2."""
    longest = ("lantern heron %d " * 20 % tuple(range(20)))[:128]
    stored = passwords.hash_password(longest)
    assert passwords.verify_password(stored, longest)
    assert not passwords.verify_password(stored, longest[:-1])
    assert not passwords.verify_password(stored, longest.upper())


def test_password_never_matches_without_valid_hash():
    assert not passwords.verify_password(None, "this is the password of nobody")
    assert not passwords.verify_password("not a hash", "seventeen lanterns")
    assert not passwords.verify_password(passwords.dummy_hash(), "seventeen\ud800lanterns")


def test_overlong_password_is_not_hashed():
    """PW-6: rejected before hashing."""
    passwords.dummy_hash()
    assert not passwords.verify_password(None, "x" * 1_000_000)
    # A hash that would match shows that nothing was compared.
    assert not passwords.verify_password(
        PasswordHasher(time_cost=1, memory_cost=64).hash("x" * 129), "x" * 129
    )
    with pytest.raises(ValueError):
        passwords.hash_password("x" * 129)


def test_hash_with_other_parameters_needs_rehash():
    assert passwords.needs_rehash(PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash("x"))
    assert not passwords.needs_rehash(passwords.dummy_hash())
