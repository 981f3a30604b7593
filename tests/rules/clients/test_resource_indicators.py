"""Resource indicators (RFC 8707, TK-6, DC-5): the audience of a token, and what of its scopes it may hold."""

from __future__ import annotations

import pytest

from app.rules.clients.resource_indicators import (
    MAX_RESOURCES,
    Catalog,
    KnownResource,
    TokenRequester,
    choose_token_format,
    choose_token_lifetime,
    identifier_problem,
    is_service_url,
    parse_resources,
    require_authorized_resources,
    resolve_target,
)
from app.rules.oauth_errors import InvalidTarget

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
MANAGER = TokenRequester(ISSUER, MANAGEMENT, client_scopes=("clients:read",))


@pytest.mark.parametrize(
    ("scopes", "asked", "asking", "kept", "audience"),
    [
        # Without a resource the scopes say whom the token is for.
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
        # The client's default resource, unless all that is asked for belongs to others.
        ("", "", WITH_DEFAULT, "", [OWN]),
        ("plain openid", "", WITH_DEFAULT, "plain openid", [OWN, ISSUER]),
        ("orders:read", "", WITH_DEFAULT, "orders:read", [ORDERS]),
        ("orders:read plain", "", WITH_DEFAULT, "orders:read plain", [ORDERS, OWN]),
        # With a resource its own scopes alone stay, beside those that belong to none.
        ("orders:read stock:read plain", ORDERS, PLAIN, "orders:read plain", [ORDERS]),
        ("openid orders:read", STOCK, PLAIN, "openid", [STOCK, ISSUER]),
        ("orders:read", f"{STOCK} {ORDERS}", PLAIN, "orders:read", [STOCK, ORDERS]),
        ("plain", OWN, WITH_DEFAULT, "plain", [OWN]),
        ("clients:read orders:read", ORDERS, MANAGER, "orders:read", [ORDERS]),
        ("clients:read orders:read", MANAGEMENT, MANAGER, "clients:read", [MANAGEMENT]),
    ],
)
def test_token_holds_what_belongs_to_its_audience(
    scopes: str, asked: str, asking: TokenRequester, kept: str, audience: list[str]
) -> None:
    target = resolve_target(scopes.split(), parse_resources(asked), asking, CATALOG)
    assert (" ".join(target.scopes), list(target.audience)) == (kept, audience)


@pytest.mark.parametrize(
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
def test_resource_that_the_client_may_not_ask_for_is_an_invalid_target(
    asked: str, asking: TokenRequester
) -> None:
    """DC-5: unknown, disabled, another's default, or the management API without a scope of it."""
    with pytest.raises(InvalidTarget) as refused:
        resolve_target((), tuple(asked.split()), asking, CATALOG)
    assert refused.value.code == "invalid_target"


@pytest.mark.parametrize(
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
def test_what_is_no_absolute_uri_without_fragment_is_refused(text: str) -> None:
    assert identifier_problem(text) is not None
    with pytest.raises(InvalidTarget):
        parse_resources(text)


def test_resources_are_asked_for_once_each_and_not_without_bound() -> None:
    assert parse_resources(f"{ORDERS} {STOCK} {ORDERS}") == (ORDERS, STOCK)
    assert parse_resources("") == ()
    with pytest.raises(InvalidTarget):
        parse_resources(" ".join(f"urn:r{number}" for number in range(MAX_RESOURCES + 1)))


def test_token_for_too_many_resources_must_name_one() -> None:
    owners = {f"s{number}": f"urn:r{number}" for number in range(MAX_RESOURCES + 3)}
    catalog = Catalog({name: KnownResource(name) for name in owners.values()}, owners)
    with pytest.raises(InvalidTarget):
        resolve_target(owners, (), PLAIN, catalog)


def test_token_request_stays_within_what_was_authorized() -> None:
    require_authorized_resources([ORDERS], [ORDERS, ISSUER])
    with pytest.raises(InvalidTarget):
        require_authorized_resources([ORDERS, STOCK], [ORDERS])


@pytest.mark.parametrize(
    ("audience", "chosen", "seconds"),
    [
        ([ISSUER], "otherwise", 3600),
        ([ORDERS], "jwt", 300),
        ([ORDERS, ISSUER], "jwt", 300),
        ([STOCK], "opaque", 900),
        ([ORDERS, STOCK], "opaque", 300),
    ],
)
def test_strictest_resource_decides_format_and_life(audience: list[str], chosen: str, seconds: int) -> None:
    assert choose_token_format(audience, CATALOG, "otherwise") == chosen
    assert choose_token_lifetime(audience, CATALOG, 3600, most=86_400) == seconds
    assert choose_token_lifetime([STOCK], CATALOG, 3600, most=600) == 600


@pytest.mark.parametrize(
    ("identifier", "own"),
    [
        ("https://id.example", True),
        ("HTTPS://id.example/organizations/acme", True),
        ("https://id.example?x", True),
        ("https://id.example.org", False),
        ("https://id.example:8443/", False),
    ],
)
def test_the_services_own_addresses_are_known(identifier: str, own: bool) -> None:
    assert is_service_url(identifier, "https://id.example") is own
