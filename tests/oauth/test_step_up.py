"""Step-up authentication for external resources (RFC 9470)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from app.models.session import Session
from app.rules.authorization.interaction import PASSWORD
from tests.oauth.conftest import (
    REDIRECT_URI,
    Flow,
    change_rows,
    clock_ago,
    is_sign_in,
    location,
    query_of,
    sign_in_on_page,
)

pytestmark = pytest.mark.either


def claims_of(jwt: str) -> dict[str, Any]:
    payload = jwt.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


@pytest.mark.parametrize("form", ["opaque", "jwt"])
def test_resource_learns_when_and_how_the_user_signed_in(flow: Flow, form: str) -> None:
    """RFC 9470 section 6: in the token (RFC 9068 section 2.2.1) and by introspection."""
    client = flow.other_client(access_token_format=form, trust="first_party", redirect_uris=[REDIRECT_URI])
    token = client.tokens()["access_token"]
    told = [client.introspect(token)] + ([claims_of(token)] if form == "jwt" else [])
    for document in told:
        assert document["acr"] == PASSWORD
        assert isinstance(document["auth_time"], int)


def test_challenged_app_gets_a_fresh_sign_in(flow: Flow) -> None:
    """RFC 9470 section 4: the challenge's ``max_age`` and ``acr_values`` go into the next request."""
    change_rows(flow, Session, authenticated_at=clock_ago(flow, 1200))
    before = flow.introspect(flow.tokens()["access_token"])["auth_time"]
    asked = flow.authorize(max_age="600", acr_values=PASSWORD)
    assert is_sign_in(asked, flow)
    answer = flow.http.get(location(sign_in_on_page(flow, asked)))
    tokens = flow.redeem(query_of(answer)["code"]).get_json()
    assert flow.introspect(tokens["access_token"])["auth_time"] > before
