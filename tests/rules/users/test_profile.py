"""Profiles: the standard claims in the form of OpenID Connect Core 5.1."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.errors import InvalidInput
from app.rules.fields import ValidationErrors
from app.rules.tokens.claims import PROFILE_CLAIMS
from app.rules.users.profile import CHECKS, validate_profile
from tests.support.cases import each

WHOLE: dict[str, Any] = {
    "given_name": "Ada",
    "family_name": "Lovelace",
    "middle_name": "King",
    "nickname": "ada",
    "preferred_username": "ada",
    "profile": "https://acme.com/ada",
    "picture": "https://acme.com/ada.png",
    "website": "https://ada.example",
    "gender": "female",
    "birthdate": "1815-12-10",
    "zoneinfo": "Europe/London",
    "locale": "en-GB",
    "phone_number": "+442079460000",
    "address": {
        "formatted": "12 St James's Square\nLondon",
        "street_address": "12 St James's Square",
        "locality": "London",
        "region": "Greater London",
        "postal_code": "SW1Y 4LE",
        "country": "United Kingdom",
    },
}


def validated(sent: dict[str, Any]) -> dict[str, Any]:
    errors = ValidationErrors()
    profile = validate_profile(sent, errors)
    errors.raise_if_any()
    return profile


def test_profile_covers_every_standard_claim() -> None:
    """Includes all claims except those with columns of their own and those set by the server."""
    assert validated(WHOLE) == WHOLE
    elsewhere = {"sub", "name", "updated_at", "email", "email_verified", "phone_number_verified"}
    assert {*CHECKS, "address"} == set(PROFILE_CLAIMS) - elsewhere


def test_empty_claims_are_left_out() -> None:
    empty = dict.fromkeys(CHECKS, "") | {"nickname": "  ", "address": {"country": " "}}
    assert validated(empty) == {}
    assert validated({}) == {}
    assert validated({"nickname": None, "address": None}) == {}


@each(
    ("name", "typed", "stored"),
    [
        ("phone_number", "+1 (425) 555-1212", "+14255551212"),
        ("birthdate", "0000-02-29", "0000-02-29"),
        ("birthdate", "1990", "1990"),
        ("birthdate", "2000-02-29", "2000-02-29"),
        ("zoneinfo", "America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("zoneinfo", "UTC", "UTC"),
        ("locale", "zh-Hant-TW", "zh-Hant-TW"),
        ("nickname", " Ada ", "Ada"),
    ],
)
def test_claim_is_stored_in_standard_form(name: str, typed: str, stored: str) -> None:
    assert validated({name: typed}) == {name: stored}


@each(
    ("field", "sent"),
    [
        ("birthdate", {"birthdate": "10.12.1815"}),
        ("birthdate", {"birthdate": "1815-13-01"}),
        ("birthdate", {"birthdate": "1815-02-30"}),
        ("birthdate", {"birthdate": "0000"}),
        ("birthdate", {"birthdate": "18151210"}),
        ("birthdate", {"birthdate": "١٨١٥"}),
        ("zoneinfo", {"zoneinfo": "Europe/Atlantis"}),
        ("zoneinfo", {"zoneinfo": "../../etc/passwd"}),
        ("zoneinfo", {"zoneinfo": "CET+1 x"}),
        ("locale", {"locale": "english please"}),
        ("locale", {"locale": "e"}),
        ("phone_number", {"phone_number": "044 668 18 00"}),
        ("phone_number", {"phone_number": "+12345"}),
        ("phone_number", {"phone_number": "+1234567890123456"}),
        ("picture", {"picture": "http://acme.com/ada.png"}),
        ("picture", {"picture": "javascript:alert(1)"}),
        ("website", {"website": "https://ada@evil.example"}),
        ("nickname", {"nickname": "A\u202eB"}),
        ("nickname", {"nickname": "x" * 101}),
        ("nickname", {"nickname": 7}),
        ("gender", {"gender": "x" * 41}),
        ("address", {"address": "London"}),
        ("address.country", {"address": {"country": "U\nK"}}),
        ("address.planet", {"address": {"planet": "Earth"}}),
        ("sub", {"sub": "usr_root"}),
        ("email_verified", {"email_verified": True}),
    ],
)
def test_invalid_claim_is_rejected_by_name(field: str, sent: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as error_info:
        validated(sent)
    assert [error.field for error in error_info.value.errors] == [field]


def test_all_invalid_claims_are_reported_together() -> None:
    with pytest.raises(InvalidInput) as error_info:
        validated({"locale": "?", "birthdate": "?", "address": {"country": "x" * 200}})
    assert {error.field for error in error_info.value.errors} == {"locale", "birthdate", "address.country"}
