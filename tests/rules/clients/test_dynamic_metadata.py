"""Client metadata with the names of RFC 7591: parsing, replacement, and the response (DC-2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.rules.clients.dynamic_metadata import FIELDS, Offer, as_fields, replacing
from app.rules.clients.metadata_documents import get_cache_time, is_document_url
from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.organizations import settings
from app.rules.scopes import IDENTITY_SCOPES, OPENID_SCOPES
from tests.support.cases import each

REGISTRY = (*IDENTITY_SCOPES, "notes:read", *sorted(ALL_PERMISSIONS))
OFFER = Offer.of(settings.default_settings(), REGISTRY)
URI = "https://rp.example/cb"


def fields(**sent: Any) -> dict[str, Any]:
    return as_fields({"redirect_uris": [URI], **sent}, OFFER)


def test_management_scopes_are_never_offered() -> None:
    assert set(OFFER.scopes) == {*IDENTITY_SCOPES, "notes:read"}
    assert OFFER.default_scopes == OPENID_SCOPES
    documents = Offer.of(settings.default_settings(), REGISTRY, apis_by_default=True)
    assert set(documents.default_scopes) == {*OPENID_SCOPES, "notes:read"}


def test_only_self_declared_fields_are_parsed() -> None:
    sent = dict.fromkeys(
        ("trust", "status", "resources", "security_profile", "token_exchange", "metadata"), "x"
    )
    assert set(fields(**sent)) <= set(FIELDS)


def test_null_counts_as_missing() -> None:
    assert fields(client_name=None, scope=None, jwks=None, contacts=None) == fields()


def test_replacement_sets_every_self_declared_field() -> None:
    replaced = replacing(fields(client_name="A"))
    assert set(replaced) == set(FIELDS) and replaced["tos_uri"] is None and replaced["name"] == "A"


@each(
    ("sent", "name"),
    [
        ({"client_name": "Mine"}, "Mine"),
        ({}, "rp.example"),
        ({"client_uri": "https://about.example/x"}, "about.example"),
        ({"redirect_uris": ["com.example.app:/cb"]}, "Unnamed app"),
        ({"redirect_uris": ["https://[bad"]}, "Unnamed app"),
    ],
)
def test_app_without_a_name_is_named_by_its_host(sent: dict[str, Any], name: str) -> None:
    assert fields(**sent)["name"] == name


@each(
    ("address", "is_one"),
    [
        ("https://app.example/client.json", True),
        ("https://app.example:8443/a/b", True),
        ("https://app.example", False),
        ("https://app.example/", False),
        ("http://app.example/c", False),
        ("https://u:p@app.example/c", False),
        ("https://app.example/a/./c", False),
        ("https://app.example/c#f", False),
        ("https://93.184.216.34/c", False),
        ("https://app.example/c\n", False),
        ("cli_00000000_00000000000000000000000000", False),
    ],
)
def test_metadata_document_url_is_validated(address: str, is_one: bool) -> None:
    """DC-3."""
    assert is_document_url(address) is is_one


@each(
    ("control", "life"),
    [
        ("", timedelta(hours=1)),
        ("max-age=600", timedelta(minutes=10)),
        ('public, MAX-AGE="600", immutable', timedelta(minutes=10)),
        ("s-maxage=600", timedelta(hours=1)),
        ("max-age=0", timedelta(minutes=1)),
        ("max-age=600, no-cache", timedelta(minutes=1)),
        ("max-age=99999999999999", timedelta(hours=1)),
        ("max-age=999999", timedelta(hours=24)),
    ],
)
def test_cache_lifetime_is_limited(control: str, life: timedelta) -> None:
    assert get_cache_time({"cache-control": control}) == life
