"""Account selection at the authorization endpoint: chooser, new accounts, hints and switching users."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from app.models.session import Session
from app.operations.clients.clients import update_client
from app.operations.grants import signing_keys
from app.operations.grants.signing_keys import sign_jwt
from app.operations.tokens.logout import read_hint
from tests.factories import Factory
from tests.oauth.conftest import (
    FAST_KEYS,
    REDIRECT_URI,
    SCOPES,
    Flow,
    change_rows,
    clock_ago,
    is_consent,
    is_sign_in,
    location,
    query_of,
    sign_in_on_page,
)
from tests.oauth.test_id_token import claims_of
from tests.support.form_browser import Page

pytestmark = pytest.mark.either

OPEN = {**FAST_KEYS, "authentication": {"registration": {"mode": "open", "verify_email": False}}}


def press(flow: Flow, answer, button: str):
    """Press the button of the page that the response leads to."""
    page = flow.http.get(location(answer))
    assert page.status_code == 200, page.text
    form = Page("", 200, page.text).form_with(button)
    return flow.http.post(form.action, data=dict(form.values))


def subject_of_answer(flow: Flow, answer) -> str:
    return str(claims_of(flow, flow.redeem(query_of(answer)["code"]).get_json()["id_token"])["sub"])


def test_account_chooser_continues_with_the_current_account(flow: Flow) -> None:
    """prompt=select_account: no password is needed and the page is shown once."""
    change_rows(flow, Session, authenticated_at=clock_ago(flow, 600), created_at=clock_ago(flow, 600))
    answer = flow.authorize(prompt="select_account")
    assert "/oauth/authorize/account?" in location(answer)
    assert "/oauth/authorize/account?" in location(
        flow.http.get(location(answer).replace("/account?", "/resume?"))
    )
    back = flow.http.get(location(press(flow, answer, "account-continue")))
    assert subject_of_answer(flow, back) == flow.user.public_id


def test_account_chooser_can_switch_to_another_account(flow: Flow) -> None:
    answer = flow.authorize(prompt="select_account", login_hint="")
    page = flow.http.get(location(answer))
    other = flow.make.user(flow.organization)
    link = f"/organizations/{flow.organization.slug}/login?"
    assert 'id="account-other"' in page.text and link in page.text
    sign_in = flow.http.get(
        location(answer).replace("oauth/authorize/account?", "login?") + "&account=another"
    )
    assert flow.user.email not in sign_in.text
    someone = Flow(flow.app, flow.http, flow.make, flow.client, other)
    moved = location(answer).replace("oauth/authorize/account?", "login?")
    form = Page("", 200, flow.http.get(moved).text).form_with("login-submit")
    values = dict(form.values) | {"email": other.email, "password": other.password}
    back = flow.http.get(location(flow.http.post(form.action, data=values)))
    assert subject_of_answer(someone, back) == other.public_id


def test_not_you_on_the_consent_page_asks_for_another_account(asking: Flow) -> None:
    """The sign-in page neither fills in the signed-in user's email nor asks for their password."""
    flow = asking
    page = flow.consent()
    link = unescape(re.findall(r'href="([^"]*)">Not you\?', page.text)[0])
    sign_in = flow.http.get(link)
    assert sign_in.status_code == 200 and flow.user.email not in sign_in.text
    assert "to continue to" in sign_in.text and 'id="confirm"' not in sign_in.text


def test_account_chooser_uses_the_account_it_showed(flow: Flow) -> None:
    """Another tab signed a different user in after the page was shown."""
    answer = flow.authorize(prompt="select_account")
    page = flow.http.get(location(answer))
    form = Page("", 200, page.text).form_with("account-continue")
    flow.make.sign_in(flow.make.user(flow.organization, name="Eve"), flow.http)
    again = flow.http.post(form.action, data=dict(form.values))
    assert again.status_code == 200 and "Eve" in again.text


def test_account_chooser_without_session_is_the_sign_in_page(flow: Flow) -> None:
    stranger = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)
    answer = stranger.authorize(prompt="select_account")
    assert is_sign_in(answer, stranger)
    back = stranger.http.get(location(sign_in_on_page(stranger, answer)))
    assert "code" in query_of(back), "signing in is choosing"


def test_account_chooser_of_an_expired_request_shows_a_message(flow: Flow) -> None:
    path = f"/organizations/{flow.organization.slug}/oauth/authorize/account?request=x"
    assert flow.http.get(path).status_code == 400


def test_sign_in_in_another_tab_continues_the_request(flow: Flow) -> None:
    """The page that was open here continues without the password, unless it is for someone else."""
    answer = flow.authorize(prompt="login")
    waiting = flow.authorize(prompt="login", login_hint="someone@else.example")
    assert 'id="confirm"' in flow.http.get(location(answer)).text
    flow.sign_in()
    back = flow.http.get(location(answer))
    assert is_consent(back, flow)
    assert "code" in query_of(flow.http.get(location(back)))
    assert "someone@else.example" in flow.http.get(location(waiting)).text


def test_another_user_may_reauthenticate_and_becomes_the_subject(flow: Flow) -> None:
    """prompt=login: the page asks for the same account, but the client accepts another one (SS-2)."""
    answer = flow.authorize(prompt="login")
    page = flow.http.get(location(answer))
    assert 'id="confirm"' in page.text and flow.user.email in page.text
    cookie = flow.make.cookie_name(flow.organization)
    before = flow.http.get_cookie(cookie, domain="localhost")
    other = Flow(flow.app, flow.http, flow.make, flow.client, flow.make.user(flow.organization))
    back = flow.http.get(location(sign_in_on_page(other, answer)))
    assert subject_of_answer(other, back) == other.user.public_id
    after = flow.http.get_cookie(cookie, domain="localhost")
    assert before and after and before.value != after.value


def test_auth_time_increases_within_the_same_second(flow: Flow) -> None:
    """SS-7: auth_time has whole seconds and must strictly increase."""
    first = claims_of(flow, flow.tokens(scope="openid")["id_token"])["auth_time"]
    answer = flow.authorize(prompt="login", scope="openid")
    back = flow.http.get(location(sign_in_on_page(flow, answer)))
    second = claims_of(flow, flow.redeem(query_of(back)["code"]).get_json()["id_token"])["auth_time"]
    assert second > first


class TestHints:
    """id_token_hint (Core 3.1.2.1)."""

    def test_hint_for_the_current_user_continues(self, flow: Flow) -> None:
        hint = flow.tokens(scope="openid")["id_token"]
        assert "code" in query_of(flow.authorize(id_token_hint=hint, prompt="none"))
        assert "code" in query_of(flow.authorize(id_token_hint=hint))

    def test_hint_with_all_claims_that_an_app_may_have_is_read(self, flow: Flow) -> None:
        claims = claims_of(flow, flow.tokens(scope="openid")["id_token"]) | {"groups": ["x" * 98] * 40}
        with flow.app.app_context():
            hint = sign_jwt(flow.organization, "ES256", claims, token_type="JWT")
            assert read_hint(flow.organization, hint) is not None, "also to sign out"
        assert "code" in query_of(flow.authorize(id_token_hint=hint, prompt="none"))

    def test_hint_for_another_user_asks_for_sign_in_and_fails_if_it_does_not_match(self, flow: Flow) -> None:
        hint = flow.tokens(scope="openid")["id_token"]
        other = Flow(
            flow.app, flow.app.test_client(), flow.make, flow.client, flow.make.user(flow.organization)
        )
        other.sign_in()
        assert query_of(other.authorize(id_token_hint=hint, prompt="none"))["error"] == "login_required"
        answer = other.authorize(id_token_hint=hint)
        assert is_sign_in(answer, other)
        back = other.http.get(location(sign_in_on_page(other, answer)))
        assert query_of(back)["error"] == "login_required", "and no loop"
        answer = other.authorize(id_token_hint=hint)
        right = Flow(flow.app, other.http, flow.make, flow.client, flow.user)
        assert "code" in query_of(right.http.get(location(sign_in_on_page(right, answer))))

    @pytest.mark.parametrize(
        "hint", ["x", "a.b.c", "e30.e30.", "ü.x.y", "eyJhbGciOiJub25lIn0.e30.", "x" * 9000]
    )
    def test_unidentifiable_hint_fails_only_with_prompt_none(self, flow: Flow, hint: str) -> None:
        assert query_of(flow.authorize(id_token_hint=hint, prompt="none"))["error"] == "login_required"
        assert "code" in query_of(flow.authorize(id_token_hint=hint))

    def test_hint_from_another_client_or_organization_is_not_identified(
        self, flow: Flow, make: Factory
    ) -> None:
        theirs = flow.other_client(trust="first_party", redirect_uris=[REDIRECT_URI]).tokens(scope="openid")[
            "id_token"
        ]
        assert query_of(flow.authorize(id_token_hint=theirs, prompt="none"))["error"] == "login_required"
        there = make.organization(settings=FAST_KEYS)
        with flow.app.app_context():
            assert read_hint(there, flow.tokens(scope="openid")["id_token"]) is None

    def test_only_id_tokens_are_accepted_as_hints(self, flow: Flow) -> None:
        """KY-4: other token types signed with our keys are not hints."""
        jwt_client = flow.other_client(
            trust="first_party", redirect_uris=[REDIRECT_URI], access_token_format="jwt"
        )
        access = jwt_client.tokens(scope="openid")["access_token"]
        with flow.app.app_context():
            assert read_hint(flow.organization, access) is None
            good = {"iss": flow.issuer, "aud": "c", "sub": "u", "at_hash": "x", "auth_time": 1}
            hint = sign_jwt(flow.organization, "ES256", good, token_type="JWT")
            assert read_hint(flow.organization, hint) is not None
            for wrong in ({"iss": "https://evil.example"}, {"sub": 1}, {"aud": ["c"]}):
                assert (
                    read_hint(
                        flow.organization,
                        sign_jwt(flow.organization, "ES256", good | wrong, token_type="JWT"),
                    )
                    is None
                )
            for kind in ("at+jwt", "logout+jwt"):
                assert (
                    read_hint(flow.organization, sign_jwt(flow.organization, "ES256", good, token_type=kind))
                    is None
                )
            head, body, signature = hint.split(".")
            assert read_hint(flow.organization, f"{head}.{body}.{signature[:-4]}AAAA") is None

    def test_expired_hint_signed_with_a_retired_key_is_accepted(self, flow: Flow) -> None:
        claims = {"iss": flow.issuer, "aud": flow.client.client_id, "sub": flow.user.public_id}
        claims |= {"at_hash": "x", "auth_time": 1, "iat": 1, "exp": 2}
        with flow.app.app_context():
            hint = sign_jwt(flow.organization, "ES256", claims, token_type="JWT")
            change_rows(flow, signing_keys.SigningKey, state="retired", slot=None)
        assert "code" in query_of(flow.authorize(id_token_hint=hint, prompt="none"))


def test_pairwise_subject_differs_per_sector(flow: Flow) -> None:
    """Core 8.1: ID token, userinfo, introspection and hint agree. Clients of one sector share the subject."""
    there = "https://elsewhere.example/cb"
    same = [
        flow.other_client(subject_type="pairwise", trust="first_party", redirect_uris=[REDIRECT_URI])
        for _ in "12"
    ]
    other = flow.other_client(subject_type="pairwise", trust="first_party", redirect_uris=[there])
    subjects = []
    for client in (*same, other):
        tokens = client.tokens()
        subject = claims_of(client, tokens["id_token"])["sub"]
        header = {"Authorization": f"Bearer {tokens['access_token']}"}
        assert flow.http.get("/oauth/userinfo", headers=header).get_json()["sub"] == subject
        assert client.introspect(tokens["access_token"])["sub"] == subject
        assert client.introspect(tokens["refresh_token"])["sub"] == subject
        assert "code" in query_of(client.authorize(id_token_hint=tokens["id_token"], prompt="none"))
        wanted = json.dumps({"id_token": {"sub": {"value": subject}}})
        assert "code" in query_of(client.authorize(claims=wanted, prompt="none"))
        subjects.append(subject)
    assert subjects[0] == subjects[1] != subjects[2]
    assert flow.user.public_id not in subjects
    assert all(subject.isascii() and subject.isprintable() and len(subject) <= 255 for subject in subjects)


def test_another_sector_ends_tokens_and_codes(flow: Flow) -> None:
    """OI-6. Core 12.2: a refreshed ID token has the same subject."""
    client = flow.other_client(subject_type="pairwise", trust="first_party", redirect_uris=[REDIRECT_URI])
    tokens, code = client.tokens(), client.code()

    def change(redirect_uri: str) -> None:
        with flow.app.app_context():
            system = flow.make.system(flow.organization)
            update_client(system, client.client.client_id, {"redirect_uris": [redirect_uri]})

    change(f"{REDIRECT_URI}/other")
    assert client.introspect(tokens["access_token"])["active"] is True
    change("https://victim.example/cb")
    assert client.introspect(tokens["access_token"]) == {"active": False}
    assert client.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    change(REDIRECT_URI)
    assert client.redeem(code).get_json()["error"] == "invalid_grant"


class TestNewAccounts:
    """prompt=create (Initiating User Registration via OpenID Connect 1.0)."""

    @pytest.fixture
    def newcomer(self, app, make: Factory) -> Flow:
        organization = make.organization(settings=OPEN)
        client = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
        return Flow(app, app.test_client(), make, client, make.user(organization))

    def fill(self, flow: Flow, address: str, **changes: str):
        page = flow.http.get(address)
        assert page.status_code == 200, page.text
        form = Page("", 200, page.text).form_with("register-submit")
        typed = {"name": "New Person", "email": "new@example.com", "password": flow.user.password}
        return flow.http.post(form.action, data=dict(form.values) | typed | changes)

    def test_new_account_is_signed_in_and_returned_to_the_client(self, newcomer: Flow) -> None:
        answer = newcomer.authorize(prompt="create", login_hint="new@example.com")
        assert f"/organizations/{newcomer.organization.slug}/register?" in location(answer)
        assert "new@example.com" in newcomer.http.get(location(answer)).text
        done = self.fill(newcomer, location(answer))
        assert is_sign_in(done, newcomer)
        form = Page("", 200, newcomer.http.get(location(done)).text).form_with("login-submit")
        values = dict(form.values) | {"email": "new@example.com", "password": newcomer.user.password}
        back = newcomer.http.get(location(newcomer.http.post(form.action, data=values)))
        tokens = newcomer.redeem(query_of(back)["code"]).get_json()
        header = {"Authorization": f"Bearer {tokens['access_token']}"}
        told = newcomer.http.get("/oauth/userinfo", headers=header).get_json()
        assert told["sub"] != newcomer.user.public_id and told["name"] == "New Person"

    def test_signed_in_user_also_sees_the_registration_page(self, newcomer: Flow) -> None:
        newcomer.sign_in()
        assert "/register?" in location(newcomer.authorize(prompt="create"))

    def test_closed_registration_is_explained_on_the_sign_in_page(self, flow: Flow) -> None:
        answer = flow.authorize(prompt="create")
        assert is_sign_in(answer, flow)
        assert 'id="registration-closed"' in flow.http.get(location(answer)).text
        path = f"/organizations/{flow.organization.slug}/register"
        assert flow.http.get(path).status_code == 403

    def test_registering_a_known_email_returns_the_same_response(self, newcomer: Flow) -> None:
        """EN-1: status, headers, body and URL are the same, and the existing password is kept."""
        path = f"/organizations/{newcomer.organization.slug}/register"
        known = self.fill(newcomer, path, email=newcomer.user.email, password="another password entirely")
        unknown = self.fill(newcomer, path)
        varying = {"Date", "X-Request-Id", "Set-Cookie"}
        first, second = (
            (one.status_code, one.data, {k: v for k, v in one.headers.items() if k not in varying})
            for one in (known, unknown)
        )
        assert first == second
        newcomer.sign_in()
