"""Resource indicators (RFC 8707, TK-6, DC-5): the audience of a token, and the scopes it can have for it."""

from __future__ import annotations

import pytest

from app.rules.clients.resource_indicators import (
    MAX_RESOURCES,
    Catalog,
    KnownResource,
    TokenRequester,
    choose_token_format,
    choose_token_lifetime,
    exclude_declined,
    identifier_problem,
    is_service_url,
    parse_resources,
    require_authorized_resources,
    resolve_target,
)
from app.rules.errors import InvalidTarget
from tests.support.cases import each

ISSUER, MANAGEMENT = "https://id.example/organizations/acme", "https://id.example/management"
ORDERS, STOCK, OFF, OWN = (
    "https://orders.example",
    "https://stock.example/v1",
    "https://off.example",
    "urn:own",
)
CATALOG = Catalog(
    {
        ORDERS: KnownResource(ORDERS, access_token_format="jwt", access_token_ttl_seconds=300),
        STOCK: KnownResource(STOCK, access_token_format="opaque", access_token_ttl_seconds=900),
        OFF: KnownResource(OFF, is_active=False),
    },
    {"orders:read": ORDERS, "orders:write": ORDERS, "stock:read": STOCK, "off:read": OFF},
)
PLAIN = TokenRequester(ISSUER, MANAGEMENT, client_scopes=("openid",))
WITH_DEFAULT = TokenRequester(ISSUER, MANAGEMENT, defaults=(OWN,))
WITH_STOCK = TokenRequester(ISSUER, MANAGEMENT, defaults=(OWN, STOCK))
MANAGER = TokenRequester(ISSUER, MANAGEMENT, client_scopes=("clients:read",))


@each(
    ("scopes", "asked", "asking", "kept", "audience"),
    [
        # Without a resource the scopes decide the audience.
        ("", "", PLAIN, "", [ISSUER]),
        ("openid profile", "", PLAIN, "openid profile", [ISSUER]),
        ("plain", "", PLAIN, "plain", [ISSUER]),
        ("orders:read", "", PLAIN, "orders:read", [ORDERS]),
        ("orders:read stock:read", "", PLAIN, "orders:read stock:read", [ORDERS, STOCK]),
        ("openid orders:read", "", PLAIN, "openid orders:read", [ORDERS, ISSUER]),
        ("orders:read off:read", "", PLAIN, "orders:read", [ORDERS]),
        ("clients:read", "", MANAGER, "clients:read", [MANAGEMENT]),
        ("clients:read plain", "", MANAGER, "clients:read plain", [MANAGEMENT, ISSUER]),
        ("clients:read orders:read", "", MANAGER, "clients:read orders:read", [MANAGEMENT, ORDERS]),
        # The client's default resource, unless all requested scopes belong to other resources.
        ("", "", WITH_DEFAULT, "", [OWN]),
        ("plain openid", "", WITH_DEFAULT, "plain openid", [OWN, ISSUER]),
        ("orders:read", "", WITH_DEFAULT, "orders:read", [ORDERS]),
        ("orders:read plain", "", WITH_DEFAULT, "orders:read plain", [ORDERS, OWN]),
        # With a resource only its scopes remain, and scopes without a resource.
        ("orders:read stock:read plain", ORDERS, PLAIN, "orders:read plain", [ORDERS]),
        ("openid orders:read", STOCK, PLAIN, "openid", [STOCK, ISSUER]),
        ("orders:read", f"{STOCK} {ORDERS}", PLAIN, "orders:read", [STOCK, ORDERS]),
        ("plain", OWN, WITH_DEFAULT, "plain", [OWN]),
        ("clients:read orders:read", ORDERS, MANAGER, "orders:read", [ORDERS]),
        ("clients:read orders:read", MANAGEMENT, MANAGER, "clients:read", [MANAGEMENT]),
    ],
)
def test_token_has_the_scopes_of_its_audience(
    scopes: str, asked: str, asking: TokenRequester, kept: str, audience: list[str]
) -> None:
    target = resolve_target(scopes.split(), parse_resources(asked), asking, CATALOG)
    assert (" ".join(target.scopes), list(target.audience)) == (kept, audience)


@each(
    ("resources", "allowed", "asking", "kept"),
    [
        ([STOCK], "openid stock:read", WITH_STOCK, [STOCK]),
        ([STOCK, ORDERS], "orders:read", PLAIN, [ORDERS]),
        ([STOCK, OWN], "openid", WITH_STOCK, [OWN]),
        ([STOCK], "openid", WITH_DEFAULT, []),
        # A default resource would be in the audience again.
        ([STOCK], "openid", WITH_STOCK, [OWN]),
        ([], "openid plain orders:read", WITH_STOCK, [ORDERS, OWN]),
        ([], "openid", TokenRequester(ISSUER, MANAGEMENT, defaults=(STOCK,)), [ISSUER]),
        ([], "orders:read", WITH_STOCK, []),
    ],
)
def test_declined_resource_is_excluded(
    resources: list[str], allowed: str, asking: TokenRequester, kept: list[str]
) -> None:
    """TK-6: the user declined all that was requested beside ``allowed``."""
    requested = ["openid", "plain", "orders:read", "stock:read"]
    assert list(exclude_declined(resources, requested, allowed.split(), asking, CATALOG)) == kept
    assert STOCK in kept or STOCK not in resolve_target(allowed.split(), kept, asking, CATALOG).audience


@each(
    ("asked", "asking"),
    [
        ("https://unknown.example", PLAIN),
        (OFF, PLAIN),
        (OFF, TokenRequester(ISSUER, MANAGEMENT, defaults=(OFF,))),
        (f"{ORDERS} https://unknown.example", PLAIN),
        (ORDERS + "/", PLAIN),
        (ORDERS.upper(), PLAIN),
        (OWN, PLAIN),
        (MANAGEMENT, PLAIN),
    ],
)
def test_unavailable_resource_is_an_invalid_target(asked: str, asking: TokenRequester) -> None:
    """DC-5: unknown, disabled, another client's default, or the management API without one of its scopes."""
    with pytest.raises(InvalidTarget) as refused:
        resolve_target((), tuple(asked.split()), asking, CATALOG)
    assert refused.value.code == "invalid_target"


@each(
    "text",
    [
        "orders",
        "/orders",
        "https://a.example#part",
        'https://a.example/"',
        "https://a.example/ä",
        "HTTPS://a",
        "a:",
    ],
)
def test_invalid_identifier_is_rejected(text: str) -> None:
    assert identifier_problem(text) is not None
    with pytest.raises(InvalidTarget):
        parse_resources(text)


def test_resources_are_deduplicated_and_limited() -> None:
    assert parse_resources(f"{ORDERS} {STOCK} {ORDERS}") == (ORDERS, STOCK)
    assert parse_resources("") == ()
    with pytest.raises(InvalidTarget):
        parse_resources(" ".join(f"urn:r{number}" for number in range(MAX_RESOURCES + 1)))


def test_too_many_resources_are_rejected() -> None:
    owners = {f"s{number}": f"urn:r{number}" for number in range(MAX_RESOURCES + 3)}
    catalog = Catalog({name: KnownResource(name) for name in owners.values()}, owners)
    with pytest.raises(InvalidTarget):
        resolve_target(owners, (), PLAIN, catalog)


def test_token_request_cannot_exceed_authorized_resources() -> None:
    require_authorized_resources([ORDERS], [ORDERS, ISSUER])
    with pytest.raises(InvalidTarget):
        require_authorized_resources([ORDERS, STOCK], [ORDERS])


@each(
    ("audience", "chosen", "seconds"),
    [
        ([ISSUER], "otherwise", 3600),
        ([ORDERS], "jwt", 300),
        ([ORDERS, ISSUER], "jwt", 300),
        ([STOCK], "opaque", 900),
        ([ORDERS, STOCK], "opaque", 300),
    ],
)
def test_strictest_resource_decides_format_and_lifetime(
    audience: list[str], chosen: str, seconds: int
) -> None:
    assert choose_token_format(audience, CATALOG, "otherwise") == chosen
    assert choose_token_lifetime(audience, CATALOG, 3600, max_seconds=86_400) == seconds
    assert choose_token_lifetime([STOCK], CATALOG, 3600, max_seconds=600) == 600


@each(
    ("identifier", "own"),
    [
        ("https://id.example", True),
        ("HTTPS://id.example/organizations/acme", True),
        ("https://id.example?x", True),
        ("https://id.example.org", False),
        ("https://id.example:8443/", False),
    ],
)
def test_service_urls_are_recognized(identifier: str, own: bool) -> None:
    assert is_service_url(identifier, "https://id.example") is own
