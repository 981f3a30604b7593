"""The claims parameter (OpenID Connect Core 5.5): claims are returned only where they were requested."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.store.transactions import transaction
from app.rules.authorization.interaction import PASSWORD
from tests.factories import bearer_header
from tests.oauth.conftest import REDIRECT_URI, Flow, is_sign_in, query_of
from tests.oauth.test_id_token import claims_of
from tests.rules.users.test_profile import WHOLE

pytestmark = pytest.mark.either


@pytest.fixture
def known(flow: Flow) -> Flow:
    """A user with a complete profile and a client that may request all of it."""

    @transaction
    def fill() -> None:
        db.session.execute(
            update(User)
            .where(User.id == flow.user.id)
            .values(profile=WHOLE | {"iss": "evil", "phone_number_verified": True})
        )

    with flow.app.app_context():
        fill()
    scopes = ["openid", "profile", "email", "address", "phone", "offline_access"]
    return flow.other_client(scopes=scopes, trust="first_party", redirect_uris=[REDIRECT_URI])


def asking_for(**places: Any) -> str:
    return json.dumps(places)


def userinfo(flow: Flow, tokens: dict[str, Any]) -> dict[str, Any]:
    answer = flow.http.get("/oauth/userinfo", headers=bearer_header(tokens["access_token"]))
    assert answer.status_code == 200, answer.text
    return dict(answer.get_json())


def test_requested_claims_are_returned_where_they_were_requested(known: Flow) -> None:
    claims = asking_for(
        userinfo={"email": {"essential": True}, "nickname": None},
        id_token={"address": None, "phone_number": {"essential": True}, "unheard_of": None},
    )
    tokens = known.tokens(scope="openid offline_access", claims=claims)
    told = userinfo(known, tokens)
    assert told == {"sub": known.user.public_id, "email": known.user.email, "nickname": "ada"}
    said = claims_of(known, tokens["id_token"])
    assert (said["address"], said["phone_number"]) == (WHOLE["address"], WHOLE["phone_number"])
    assert {"email", "nickname", "name"}.isdisjoint(said)
    # The grant stores the request, so refreshed tokens return the same claims (Core 12.2).
    renewed = known.refresh(tokens["refresh_token"]).get_json()
    assert userinfo(known, renewed) == told
    assert claims_of(known, renewed["id_token"])["address"] == WHOLE["address"]


def test_userinfo_returns_a_whole_profile_with_the_right_types(known: Flow) -> None:
    """Core 5.1: all standard claims; an unverified phone number is not reported as verified."""
    told = userinfo(known, known.tokens(scope="openid profile email address phone"))
    for name, value in WHOLE.items():
        assert told[name] == value
    assert told["phone_number_verified"] is False and told["email_verified"] is True
    assert isinstance(told["updated_at"], int)
    assert "iss" not in told


def test_requested_claims_do_not_overwrite_protocol_claims(known: Flow) -> None:
    """OI-2: whatever the profile holds; a pairwise client keeps its subject."""
    pairwise = known.other_client(subject_type="pairwise", trust="first_party", redirect_uris=[REDIRECT_URI])
    own = claims_of(pairwise, pairwise.tokens(scope="openid")["id_token"])["sub"]
    asked = dict.fromkeys(("iss", "sub", "aud", "exp", "iat", "nonce", "azp", "at_hash", "name"))
    tokens = pairwise.tokens(scope="openid", nonce="n", claims=asking_for(id_token=asked, userinfo=asked))
    said = claims_of(pairwise, tokens["id_token"])
    assert (said["iss"], said["sub"], said["aud"]) == (known.issuer, own, pairwise.client.client_id)
    assert (said["nonce"], said["name"]) == ("n", "Ada Lovelace")
    assert userinfo(pairwise, tokens) == {"sub": own, "name": "Ada Lovelace"}


def test_claim_of_an_unregistered_scope_is_not_returned(known: Flow) -> None:
    """A client that is not registered for the scope address does not receive the address."""
    less = known.other_client(trust="first_party", redirect_uris=[REDIRECT_URI])
    tokens = less.tokens(
        scope="openid",
        claims=asking_for(userinfo={"address": None, "email": None}, id_token={"address": None}),
    )
    assert set(userinfo(less, tokens)) == {"sub", "email"}
    assert "address" not in claims_of(less, tokens["id_token"])


def test_consent_for_claims_is_shown_and_remembered(asking: Flow) -> None:
    """The user allows the scope description that covers the claim."""
    claims = asking_for(userinfo={"email": None})
    page = asking.consent(scope="openid", claims=claims)
    assert 'value="email"' in page.text and 'value="profile"' not in page.text
    answer = asking.decide(page)
    tokens = asking.redeem(query_of(answer)["code"]).get_json()
    assert tokens["scope"] == "openid" if "scope" in tokens else True
    assert set(userinfo(asking, tokens)) == {"sub", "email"}
    assert "code" in query_of(asking.authorize(scope="openid", claims=claims)), "allowed before"
    assert (
        query_of(asking.authorize(scope="openid", claims=asking_for(id_token={"name": None}), prompt="none"))[
            "error"
        ]
        == "consent_required"
    )


def test_declined_claim_is_not_returned(asking: Flow) -> None:
    optional = asking.other_client(redirect_uris=[REDIRECT_URI], optional_scopes=["email"])
    page = optional.consent(scope="openid", claims=asking_for(userinfo={"email": None}))
    answer = optional.decide(page, scope=["openid"])
    tokens = optional.redeem(query_of(answer)["code"]).get_json()
    assert set(userinfo(optional, tokens)) == {"sub"}


def test_malformed_claims_parameter_is_reported_to_the_client(flow: Flow) -> None:
    answer = query_of(flow.authorize(claims="{", state="x"))
    assert (answer["error"], answer["state"], answer["iss"]) == ("invalid_request", "x", flow.issuer)


def test_signed_in_user_must_be_one_of_the_requested_subjects(flow: Flow) -> None:
    """Core 5.5.1: another user must not be returned instead."""
    own = asking_for(id_token={"sub": {"values": ["usr_somebody_else", flow.user.public_id]}})
    other = asking_for(id_token={"sub": {"value": "usr_somebody_else"}})
    assert "code" in query_of(flow.authorize(claims=own, prompt="none"))
    assert query_of(flow.authorize(claims=other, prompt="none"))["error"] == "login_required"
    assert is_sign_in(flow.authorize(claims=other), flow)


def test_essential_acr_is_met_or_rejected(flow: Flow) -> None:
    """Core 5.5.1.1: unmet_authentication_requirements; voluntary requests never fail."""
    wish = {"id_token": {"acr": {"values": ["urn:phishing-resistant", PASSWORD]}}}
    any_class = {"acr_values": "urn:other", "claims": asking_for(id_token={"acr": {"essential": True}})}
    voluntary = ({"acr_values": PASSWORD}, {"acr_values": "urn:other"}, {"claims": json.dumps(wish)}, {})
    for more in (*voluntary, any_class):
        assert claims_of(flow, flow.tokens(scope="openid", **more)["id_token"])["acr"] == PASSWORD
    must = asking_for(id_token={"acr": {"essential": True, "values": ["urn:phishing-resistant"]}})
    assert query_of(flow.authorize(claims=must))["error"] == "unmet_authentication_requirements"
    met = asking_for(id_token={"acr": {"essential": True, "value": PASSWORD}})
    assert claims_of(flow, flow.tokens(scope="openid", claims=met)["id_token"])["acr"] == PASSWORD
