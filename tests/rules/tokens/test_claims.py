"""Claims: each scope releases its own, with the right types and without empty values."""

from __future__ import annotations

from datetime import UTC, datetime

from app.rules.tokens.claims import PROFILE_CLAIMS, Profile, claims_for
from tests.support.cases import each

FULL = Profile(
    sub="usr_01jd",
    email="ada@acme.com",
    email_verified=True,
    name="Ada Lovelace",
    family_name="Lovelace",
    given_name="Ada",
    middle_name="King",
    nickname="ada",
    preferred_username="ada",
    profile="https://acme.com/ada",
    picture="https://acme.com/ada.png",
    website="https://ada.example",
    gender="female",
    birthdate="1815-12-10",
    zoneinfo="Europe/London",
    locale="en-GB",
    phone_number="+44 20 7946 0000",
    phone_number_verified=False,
    address={
        "street_address": "12 St James's Square",
        "locality": "London",
        "country": "GB",
        "region": "",
        "planet": "Earth",
    },
    updated_at=datetime(2026, 11, 21, 5, 0, 0, 900_000, tzinfo=UTC),
)


def test_only_the_subject_is_released_without_scopes():
    assert claims_for(FULL, []) == {"sub": "usr_01jd"}
    assert claims_for(FULL, ["openid", "offline_access", "orders:read"]) == {"sub": "usr_01jd"}


@each(
    ("scope", "count"),
    [("profile", 14), ("email", 2), ("address", 1), ("phone", 2)],
)
def test_each_scope_releases_its_claims_of_core_5_4(scope, count):
    assert len(claims_for(FULL, ["openid", scope])) == 1 + count


def test_types_match_core_5_1():
    claims = claims_for(FULL, ["openid", "profile", "email", "address", "phone"])
    assert claims["updated_at"] == 1795237200
    assert type(claims["updated_at"]) is int
    assert claims["email_verified"] is True
    assert claims["phone_number_verified"] is False
    assert claims["address"] == {
        "street_address": "12 St James's Square",
        "locality": "London",
        "country": "GB",
    }
    assert set(claims) == set(PROFILE_CLAIMS)


def test_missing_values_are_omitted():
    bare = Profile(sub="usr_01jd", email="ada@acme.com", name="", address={"country": ""})
    claims = claims_for(bare, ["openid", "profile", "email", "address", "phone"])
    assert claims == {"sub": "usr_01jd", "email": "ada@acme.com", "email_verified": False}


def test_claims_can_be_requested_by_name():
    assert claims_for(FULL, ["openid"], ["nickname", "iss", "password"]) == {
        "sub": "usr_01jd",
        "nickname": "ada",
    }
