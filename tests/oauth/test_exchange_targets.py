"""Token exchange for a resource that the subject token is not for (RFC 8693 section 2.2.2, RFC 8707)."""

from __future__ import annotations

import pytest

from tests.factories import MadeClient
from tests.oauth import test_token_exchange
from tests.oauth.conftest import Flow
from tests.oauth.test_token_exchange import ORDERS, STOCK, exchange, refusal, service, subject, told

pytestmark = pytest.mark.either

web = test_token_exchange.web
orders = test_token_exchange.orders


def test_token_without_scopes_is_not_issued_for_another_resource(web: Flow, orders: MadeClient) -> None:
    """It would tell another API who the user is without the user's consent."""
    token = subject(web, scope="orders:read")["access_token"]
    assert refusal(exchange(web, orders, token)) == "invalid_target"
    impersonating = service(web, "impersonation", name="Silent", resources=[ORDERS])
    assert refusal(exchange(web, impersonating, token)) == "invalid_target"


def test_resource_without_a_scope_is_not_added_to_one_with_a_scope(web: Flow, orders: MadeClient) -> None:
    token = subject(web, scope="orders:read")["access_token"]
    both = service(web, name="Both", scopes=["orders:read", "stock:read"], resources=[ORDERS])
    assert refusal(exchange(web, both, token, resource=[ORDERS, STOCK])) == "invalid_target"
    assert exchange(web, both, token, resource=ORDERS).get_json()["scope"] == "orders:read"
    whole = subject(web)["access_token"]
    given = exchange(web, both, whole, resource=[ORDERS, STOCK]).get_json()
    assert told(web, both, given["access_token"])["aud"] == [ORDERS, STOCK]


def test_token_without_scopes_is_issued_for_the_same_resource(web: Flow) -> None:
    """The resource already knows the user."""
    bare = service(web, name="Bare", scopes=["stock:read"])
    token = subject(web, scope="orders:read")["access_token"]
    given = exchange(web, bare, token, resource=ORDERS).get_json()
    seen = told(web, bare, given["access_token"])
    assert (seen["aud"], seen.get("scope", "")) == (ORDERS, "")


def test_requested_scope_of_another_resource_is_an_invalid_scope(web: Flow) -> None:
    """RFC 6749 section 5.1: a response without scope would mean that all requested scopes were granted."""
    both = service(web, name="Both", scopes=["orders:read", "stock:read"], resources=[ORDERS])
    token = subject(web)["access_token"]
    assert refusal(exchange(web, both, token, scope="orders:read", resource=STOCK)) == "invalid_scope"
    assert exchange(web, both, token, scope="stock:read", resource=STOCK).get_json()["scope"] == "stock:read"
    narrow = subject(web, scope="orders:read")["access_token"]
    assert refusal(exchange(web, both, narrow, scope="orders:read", resource=STOCK)) == "invalid_target"


def test_scope_of_the_other_resource_allows_the_exchange(web: Flow, orders: MadeClient) -> None:
    token = subject(web)["access_token"]
    assert exchange(web, orders, token, resource=STOCK).get_json()["scope"] == "stock:read"
