"""Two factors as seen by clients: ``amr`` and ``acr`` in the ID token, and how to request them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from app.operations.organizations.settings import update_settings
from app.rules.authorization.interaction import MULTI_FACTOR, PASSWORD
from tests.account.test_second_step import hidden
from tests.oauth.conftest import Flow, is_sign_in, location, query_of, sign_in_on_page
from tests.support.authenticator import with_app
from tests.support.form_browser import Page

pytestmark = pytest.mark.either


def claims_of(jwt: str) -> dict[str, Any]:
    payload = jwt.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def essential(*values: str) -> str:
    return json.dumps({"id_token": {"acr": {"essential": True, "values": list(values)}}})


def plain_sign_in(flow: Flow) -> None:
    """Give the browser a session from before the second factor was required."""
    policy = "authentication", "mfa", "policy"
    with flow.app.app_context():
        set_policy(flow, policy, "off")
    flow.sign_in()
    with flow.app.app_context():
        set_policy(flow, policy, "optional")


def set_policy(flow: Flow, path: tuple[str, str, str], value: str) -> None:
    head, section, name = path
    system = flow.make.system(flow.organization)
    update_settings(system, flow.organization.slug, {head: {section: {name: value}}})


def both_factors(flow: Flow, asked: Any, phone: Any) -> Any:
    """Sign in with password and code and return the redirect target."""
    step = sign_in_on_page(flow, asked)
    assert "/login/verify?" in location(step) and "request=" in location(step)
    page = flow.http.get(location(step))
    assert isinstance(Page("", page.status_code, page.text).form_with("verify-submit").action, str)
    path = f"/organizations/{flow.organization.slug}/login/verify"
    return flow.http.post(path, data=hidden(page) | {"code": phone.code()})


def test_used_factors_are_reported(flow: Flow) -> None:
    """OI-1: ``amr`` and ``acr`` match the session, in the ID token and at introspection (RFC 8176, RFC 9470)."""
    phone = with_app(flow.app, flow.user)
    answer = flow.http.get(location(both_factors(flow, flow.authorize(prompt="login"), phone)))
    tokens = flow.redeem(query_of(answer)["code"]).get_json()
    claims = claims_of(tokens["id_token"])
    assert claims["amr"] == ["pwd", "otp", "mfa"] and claims["acr"] == MULTI_FACTOR
    assert flow.introspect(tokens["access_token"])["acr"] == MULTI_FACTOR
    # A client that requested the weaker class receives that value.
    weaker = flow.redeem(query_of(flow.authorize(acr_values=PASSWORD))["code"]).get_json()
    assert claims_of(weaker["id_token"])["acr"] == PASSWORD


@pytest.mark.parametrize("wish", [{"acr_values": MULTI_FACTOR}, {"claims": essential(MULTI_FACTOR)}])
def test_password_session_of_a_user_with_a_second_factor_is_stepped_up(
    flow: Flow, wish: dict[str, str]
) -> None:
    phone = with_app(flow.app, flow.user)
    plain_sign_in(flow)
    asked = flow.authorize(**wish)
    assert is_sign_in(asked, flow)
    answer = flow.http.get(location(both_factors(flow, asked, phone)))
    tokens = flow.redeem(query_of(answer)["code"]).get_json()
    assert claims_of(tokens["id_token"])["acr"] == MULTI_FACTOR


def test_user_without_a_second_factor_gets_an_error_only_if_it_is_essential(flow: Flow) -> None:
    """Error code unmet_authentication_requirements; a voluntary request succeeds."""
    tokens = flow.redeem(query_of(flow.authorize(acr_values=MULTI_FACTOR))["code"]).get_json()
    assert claims_of(tokens["id_token"])["acr"] == PASSWORD
    refused = query_of(flow.authorize(claims=essential(MULTI_FACTOR)))
    assert refused["error"] == "unmet_authentication_requirements"


def test_both_acr_values_are_in_the_metadata(flow: Flow) -> None:
    document = flow.http.get(
        f"/organizations/{flow.organization.slug}/.well-known/openid-configuration"
    ).get_json()
    assert document["acr_values_supported"] == [PASSWORD, MULTI_FACTOR]
