"""prompt and max_age: reauthentication happens once, and prompt=none shows no page."""

from __future__ import annotations

import pytest

from app.models.client import Client
from app.models.grant import AuthorizationRequest
from app.models.session import Session
from app.operations.clients.clients import update_client
from app.operations.organizations.settings import update_settings
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
from tests.oauth.test_id_token import claims_of

pytestmark = pytest.mark.either


def test_prompt_none_never_shows_a_page(asking: Flow) -> None:
    assert query_of(asking.authorize(prompt="none"))["error"] == "consent_required"
    asking.decide(asking.consent())
    first, second = (
        claims_of(asking, asking.tokens(scope="openid", prompt="none")["id_token"]) for _ in range(2)
    )
    assert (first["sub"], first["auth_time"]) == (second["sub"], second["auth_time"])
    change_rows(asking, Session, authenticated_at=clock_ago(asking, 600))
    assert query_of(asking.authorize(prompt="none", max_age="60"))["error"] == "login_required"
    stranger = Flow(asking.app, asking.app.test_client(), asking.make, asking.client, asking.user)
    assert query_of(stranger.authorize(prompt="none"))["error"] == "login_required"


@pytest.mark.parametrize(
    "demand",
    [{"prompt": "login"}, {"max_age": "60"}, {"max_age": "0"}, {"prompt": "create"}],
    ids=str,
)
def test_fresh_sign_in_is_required_only_once(flow: Flow, demand: dict[str, str]) -> None:
    """SS-7: the page is shown once, ``auth_time`` increases, and nothing loops."""
    change_rows(flow, Session, authenticated_at=clock_ago(flow, 600), created_at=clock_ago(flow, 600))
    before = claims_of(flow, flow.tokens(scope="openid")["id_token"])["auth_time"]
    answer = flow.authorize(**demand)
    assert is_sign_in(answer, flow)
    # The existing session never satisfies the request.
    resume = location(answer).replace("/login?", "/oauth/authorize/resume?")
    assert is_sign_in(flow.http.get(resume), flow)
    back = flow.http.get(location(sign_in_on_page(flow, answer)))
    after = claims_of(flow, flow.redeem(query_of(back)["code"]).get_json()["id_token"])["auth_time"]
    assert after >= before + 600


def test_slow_consent_does_not_require_the_password_again(asking: Flow) -> None:
    answer = asking.authorize(prompt="login", max_age="1")
    page = asking.http.get(location(sign_in_on_page(asking, answer)))
    change_rows(asking, Session, authenticated_at=clock_ago(asking, 300))
    change_rows(asking, AuthorizationRequest, created_at=clock_ago(asking, 400))
    assert "code" in query_of(asking.decide(page))


@pytest.mark.parametrize(("remembers", "kind"), [(False, {}), (True, {}), (True, {"type": "spa"})])
def test_prompt_none_succeeds_for_a_self_registered_client_only_if_consents_are_remembered(
    asking: Flow, remembers: bool, kind: dict[str, str]
) -> None:
    """DC-1, CO-2: by a setting of the organization, and never for a public client."""
    if remembers:
        with asking.app.app_context():
            system = asking.make.system(asking.organization)
            consent = {"oauth": {"consent": {"remember_self_registered": True}}}
            update_settings(system, asking.organization.slug, consent)
    flow = asking.other_client(redirect_uris=[REDIRECT_URI], **kind)
    change_rows(flow, Client, source="dynamic")
    with flow.app.app_context():
        system = flow.make.system(flow.organization)
        update_client(system, flow.client.client_id, {"description": "Read again."})
    is_allowed = remembers and not kind
    answer = flow.authorize(prompt="none")
    # Errors of clients that nobody reviewed are shown first, except where they can use prompt=none (OR-2).
    assert "consent_required" in (location(answer) if is_allowed else answer.text)
    flow.decide(flow.consent())
    answer = flow.authorize(prompt="none")
    if is_allowed:
        assert query_of(answer)["code"]
    else:
        assert "consent_required" in answer.text
