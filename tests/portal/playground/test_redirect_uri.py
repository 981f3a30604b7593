"""The limits of the playground's redirect URI (RU-8), and of the codes that come back to it."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.operations.clients.clients import update_client
from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory, MadeClient
from tests.portal.conftest import PortalUser
from tests.portal.playground.conftest import CODE, Try, own_client, sealed
from tests.support.databases import Database


class TestRedirectUri:
    """The playground's redirect URI is valid only for the request of a run, and only where it was begun."""

    def test_request_without_a_run_is_refused(self, grace: PortalUser, orchard: MadeClient) -> None:
        for state in ("", "x" * 43):
            sent = Try(grace, orchard).request | {"state": state}
            assert_unregistered(grace.http.get("/oauth/authorize", query_string=sent))

    @pytest.mark.parametrize("name", ["state", "code_challenge"])
    def test_changed_request_is_refused(self, grace: PortalUser, orchard: MadeClient, name: str) -> None:
        run = Try(grace, orchard)
        assert_unregistered(run.authorize(**{name: challenge_of("another verifier")}))

    @pytest.mark.parametrize("suffix", ["/", "?x=1", "/../callback", "%2F", "#x"])
    def test_another_uri_of_the_playground_is_refused(
        self, grace: PortalUser, orchard: MadeClient, suffix: str
    ) -> None:
        run = Try(grace, orchard)
        assert_unregistered(run.authorize(redirect_uri=run.request["redirect_uri"] + suffix))

    def test_another_client_cannot_use_the_run(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
    ) -> None:
        run, other = Try(grace, orchard), own_client(make, acme, grace)
        assert_unregistered(run.authorize(client_id=other.client_id))

    def test_another_browser_of_the_same_user_is_refused(
        self, app: Flask, make: Factory, grace: PortalUser, orchard: MadeClient
    ) -> None:
        run, http = Try(grace, orchard), app.test_client()
        make.sign_in(grace.user, http)
        assert_unregistered(http.get("/oauth/authorize", query_string=run.request))

    def test_another_user_in_the_same_browser_is_refused(
        self, make: Factory, acme: Any, grace: PortalUser, orchard: MadeClient
    ) -> None:
        run = Try(grace, orchard)
        request = run.request
        make.sign_in(make.user(acme, role="admin"), grace.http)
        assert_unregistered(grace.http.get("/oauth/authorize", query_string=request))
        assert grace.get(run.path).status_code == 404
        assert grace.get("/playground/callback?code=x&state=" + request["state"]).status_code == 400

    def test_visitor_who_is_not_signed_in_is_refused(
        self, app: Flask, grace: PortalUser, orchard: MadeClient
    ) -> None:
        run = Try(grace, orchard)
        assert_unregistered(app.test_client().get("/oauth/authorize", query_string=run.request))

    def test_redeemed_run_cannot_start_again(self, grace: PortalUser, orchard: MadeClient) -> None:
        run = Try(grace, orchard)
        request = run.request
        callback = run.authorize().headers["Location"]
        run.redeem(parse_qs(urlsplit(callback).query)["code"][0])
        assert_unregistered(grace.http.get("/oauth/authorize", query_string=request))
        assert grace.get(f"/playground/callback?{urlsplit(callback).query}").status_code == 400

    def test_pushed_request_is_refused(self, grace: PortalUser, orchard: MadeClient) -> None:
        """A push has no browser."""
        run = Try(grace, orchard)
        answer = grace.http.post("/oauth/par", data=run.request, headers=orchard.basic)
        assert answer.status_code == 400

    def test_run_ends_when_the_client_may_not_be_changed_any_more(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
    ) -> None:
        run = Try(grace, orchard)
        request = run.request
        with make.app.app_context():
            update_client(
                make.system(acme), orchard.client_id, {"scopes": ["openid", "email", "clients:write"]}
            )
        # A developer has only clients:write:own.
        assert_unregistered(grace.http.get("/oauth/authorize", query_string=request))
        assert grace.get(run.path).status_code == 403

    def test_stored_request_is_refused_after_another_user_signed_in(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
    ) -> None:
        """The consent page was open when the browser's user changed."""
        run = Try(grace, orchard)
        resume = grace.http.get("/oauth/authorize", query_string=run.request).headers["Location"]
        make.sign_in(make.user(acme, role="admin"), grace.http)
        assert_unregistered(grace.http.get(resume))


def assert_unregistered(answer: TestResponse) -> None:
    assert answer.status_code == 400 and "Location" not in answer.headers
    assert "redirect_uri isn't registered" in unescape(answer.text)


class TestCode:
    """The code of the playground can be redeemed by nobody else, and the playground redeems no other."""

    def test_client_itself_cannot_redeem_it(
        self, grace: PortalUser, orchard: MadeClient, app: Flask, database: Database
    ) -> None:
        run = Try(grace, orchard)
        code = run.come_back()
        sent = {"grant_type": CODE, "code": code, "redirect_uri": run.request["redirect_uri"]}
        answer = app.test_client().post(
            "/oauth/token", data=sent | {"code_verifier": "v" * 43}, headers=orchard.basic
        )
        assert answer.status_code == 400 and answer.get_json()["error"] == "invalid_grant"
        assert "redirect_uri" in answer.get_json()["error_description"]
        assert run.redeem(code) and "Signature ✓" in grace.text

    def test_code_of_another_run_is_refused(self, grace: PortalUser, orchard: MadeClient) -> None:
        first, second = Try(grace, orchard), Try(grace, orchard)
        second.redeem(first.come_back())
        assert second.response("error") == "invalid_grant"

    def test_code_of_the_real_app_is_refused(self, grace: PortalUser, orchard: MadeClient) -> None:
        run = Try(grace, orchard)
        answer = run.authorize(redirect_uri="https://orchard.example/callback")
        code = parse_qs(urlsplit(answer.headers["Location"]).query)["code"][0]
        # With the app's own redirect URI: client, verifier and code belong together.
        run.redeem(code, "redirect")
        assert run.response("error") == "invalid_grant" and "Signature ✓" not in grace.text

    def test_callback_with_a_foreign_state_does_nothing(
        self, grace: PortalUser, orchard: MadeClient, database: Database
    ) -> None:
        code = Try(grace, orchard).come_back()
        before = sealed(database)
        for state in ("", "x" * 43):
            page = grace.get(f"/playground/callback?code={code}&state={state}")
            assert page.status_code == 400 and "This response isn't for you" in grace.text
            assert code not in page.text
        assert sealed(database) == before

    def test_callback_with_another_issuer_offers_nothing(
        self, grace: PortalUser, orchard: MadeClient
    ) -> None:
        run = Try(grace, orchard)
        state = run.request["state"]
        page = grace.get(f"/playground/callback?code=stolen&state={state}&iss=https://evil.example")
        assert "iss is wrong" in grace.text and 'value="token"' not in page.text

    def test_callback_is_read_twice_without_effect(
        self, grace: PortalUser, orchard: MadeClient, database: Database
    ) -> None:
        run = Try(grace, orchard)
        callback = urlsplit(run.authorize().headers["Location"])
        before = sealed(database)
        pages = [grace.get(f"{callback.path}?{callback.query}") for _ in range(2)]
        assert [page.status_code for page in pages] == [200, 200] and sealed(database) == before

    def test_error_of_the_authorization_endpoint_is_explained(
        self, grace: PortalUser, orchard: MadeClient
    ) -> None:
        run = Try(grace, orchard, prompt="none")
        location = run.authorize().headers["Location"]
        grace.get(f"{urlsplit(location).path}?{urlsplit(location).query}")
        assert "prompt=none" in grace.text
