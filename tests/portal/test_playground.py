"""The playground: the real flows with one's own client, and the limits of its redirect URI (RU-8)."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from flask import Flask
from sqlalchemy import func, select
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.grant import Consent, Grant
from app.operations.authorization import playground
from app.operations.clients.clients import update_client
from app.operations.organizations.organizations import update_organization
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.operations.store.usage_counters import counters
from app.rules.authorization.authorization_request import challenge_of
from app.rules.errors import Forbidden
from tests.factories import Factory, MadeClient
from tests.oauth.device import Device
from tests.portal.conftest import PortalUser
from tests.support.databases import Database
from tests.support.form_browser import Page
from tests.support.signer import Signer

SETTINGS = {"oauth": {"signing": {"algorithm": "ES256"}}}
CODE, DEVICE = "authorization_code", "urn:ietf:params:oauth:grant-type:device_code"


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme", name="Acme", settings=SETTINGS)


@pytest.fixture
def grace(portal_user: Any, acme: Any) -> PortalUser:
    """A developer."""
    found: PortalUser = portal_user(acme, "developer", email="grace@acme.example")
    return found


@pytest.fixture
def orchard(make: Factory, acme: Any, grace: PortalUser) -> MadeClient:
    """The developer's own confidential client, which members may not allow without an administrator."""
    return own_client(make, acme, grace)


def own_client(make: Factory, organization: Any, user: PortalUser, **fields: Any) -> MadeClient:
    with make.app.app_context():
        return make.client(organization, by=make.actor(organization, user=user.user), **fields)


class Try:
    """A run in the browser of ``user``."""

    def __init__(self, user: PortalUser, client: MadeClient, grant_type: str = CODE, **choices: Any) -> None:
        self.user, self.client = user, client
        user.get(f"/playground?client={client.client_id}&grant_type={grant_type}")
        fields = {
            "client": client.client_id,
            "grant_type": grant_type,
            "scopes": ["openid", "email"],
            "prompt": "",
        }
        page = user.send("/playground", **(fields | choices))
        assert page.status_code == 303, user.text[-900:]
        self.path = urlsplit(page.headers["Location"]).path
        user.get(self.path)

    @property
    def request(self) -> dict[str, str]:
        """The parameters of the authorization request on the page."""
        found = re.search(r'id="go" href="([^"]+)"', self.user.get(self.path).text)
        assert found
        return dict(parse_qsl(urlsplit(unescape(found[1])).query))

    def authorize(self, http: Any = None, **changes: str) -> TestResponse:
        """Send the authorization request, allow it if asked to, and return the last response."""
        http = http or self.user.http
        issuer = f"/organizations/{self.user.slug}"
        answer = http.get(f"{issuer}/oauth/authorize", query_string=self.request | changes)
        if "/authorize/resume" in answer.headers.get("Location", ""):
            page = http.get(answer.headers["Location"])
            form = Page("", page.status_code, page.text).form_with("consent-allow")
            body: dict[str, list[str]] = {}
            for name, value in (*form.values, form.buttons["consent-allow"]):
                body.setdefault(name, []).append(value)
            answer = http.post(form.action, data=body)
        return answer

    def come_back(self) -> str:
        """Authorize, open the callback and return the code."""
        location = self.authorize().headers["Location"]
        page = self.user.get(f"{urlsplit(location).path}?{urlsplit(location).query}")
        assert page.status_code == 200, self.user.text[-900:]
        return parse_qs(urlsplit(location).query)["code"][0]

    def press(self, action: str, **fields: str) -> TestResponse:
        """Press a button and return the page that follows."""
        answer = self.user.send(self.path, action=action, **fields)
        assert answer.status_code == 303, self.user.text[-900:]
        return self.user.get(self.path)

    def redeem(self, code: str, broken: str = "") -> TestResponse:
        return self.press("token", code=code, **({"break": broken} if broken else {}))

    def response(self, name: str) -> str:
        """Return a member of the newest response on the page."""
        found = re.findall(rf'"{name}": "([^"]+)"', unescape(self.user.get(self.path).text))
        assert found, self.user.text[-900:]
        return str(found[-1])


def allow_nobody(make: Factory, organization: Any) -> None:
    with make.app.app_context():
        changes = {"oauth": {"consent": {"members_may_allow": "none"}}}
        update_settings(make.system(organization), organization.slug, changes)


def test_only_client_is_chosen_from_the_start(make: Factory, acme: Any, grace: PortalUser) -> None:
    own_client(make, acme, grace)
    assert "Build the request" in grace.get("/playground").text

    own_client(make, acme, grace, name="Another")
    assert "Build the request" not in grace.get("/playground").text


def test_confidential_client_gets_tokens_without_its_secret(grace: PortalUser, orchard: MadeClient) -> None:
    """The whole flow; the page never has the secret."""
    run = Try(grace, orchard)
    assert run.request["redirect_uri"].endswith("/portal/acme/playground/callback")
    assert run.request["code_challenge_method"] == "S256" and len(run.request["state"]) >= 43
    code = run.come_back()
    assert "state ✓" in grace.text and "iss ✓" in grace.text and "code ✓" in grace.text
    page = run.redeem(code)
    assert "200" in grace.text and "Signature ✓" in grace.text and "nonce ✓" in grace.text
    assert "at_hash ✓" in grace.text and "is wrong" not in grace.text
    assert "$CLIENT_SECRET" in page.text and orchard.secret not in page.text
    assert run.press("userinfo") and "grace@acme.example" in run.response("email")
    assert run.press("introspect") and '"active": true' in unescape(grace.page.text)
    run.press("revoke-all")
    assert run.press("introspect") and '"active": false' in unescape(grace.page.text)


def test_public_client_gets_tokens_and_refreshes(grace: PortalUser, make: Factory, acme: Any) -> None:
    spa = own_client(make, acme, grace, type="spa")
    run = Try(grace, spa, scopes=["openid", "offline_access"])
    run.redeem(run.come_back())
    first = run.response("refresh_token")
    run.press("refresh")
    assert run.response("refresh_token") != first
    assert "Introspect" not in grace.text


def test_client_credentials_get_a_token(grace: PortalUser, make: Factory, acme: Any) -> None:
    machine = own_client(make, acme, grace, type="machine", scopes=[], redirect_uris=[])
    run = Try(grace, machine, "client_credentials", scopes=[])
    run.press("token")
    assert run.response("access_token").startswith("gth_at_")
    assert "grant_type=client_credentials" in grace.page.text


def test_owner_needs_no_approval_and_consents_as_everybody(
    grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
) -> None:
    """Without the playground the same user has to ask an administrator."""
    allow_nobody(make, acme)
    run = Try(grace, orchard)
    usual = grace.http.get(
        "/oauth/authorize", query_string=run.request | {"redirect_uri": "https://orchard.example/callback"}
    )
    assert "client-request-send" in grace.http.get(usual.headers["Location"]).text
    consent = grace.http.get("/oauth/authorize", query_string=run.request)
    assert "consent-allow" in grace.http.get(consent.headers["Location"]).text
    run.redeem(run.come_back())
    with make.app.app_context():
        # The access ends with the run, and the app that asks later needs the approval as before.
        [grant] = db.session.scalars(select(Grant).where(Grant.organization_id == acme.id))
        assert grant.expires_at <= clock.now() + playground.LIFETIME
        assert db.session.scalar(select(func.count()).select_from(Consent)) == 0


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        ("verifier", "The code_verifier is missing or does not match"),
        ("redirect", "The redirect URI at the token endpoint is not the one"),
        ("reuse", "The code was used twice, and the tokens issued for it were revoked."),
    ],
)
def test_broken_request_shows_the_real_error_and_its_cause(
    grace: PortalUser, orchard: MadeClient, broken: str, cause: str
) -> None:
    run = Try(grace, orchard)
    code = run.come_back()
    run.redeem(code, broken)
    assert "400" in grace.text and cause in grace.text and run.response("error") == "invalid_grant"
    if broken == "reuse":
        run.press("introspect")
        assert '"active": false' in unescape(grace.page.text)
        return
    run.redeem(code)
    assert "Signature ✓" in grace.text


def test_failed_request_is_marked_in_the_log(
    grace: PortalUser, orchard: MadeClient, app: Flask, database: Database
) -> None:
    run = Try(grace, orchard)
    run.redeem(run.come_back(), "verifier")
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()
    grace.get("/logs")
    entry = re.search(r"/logs/(flr_\w+)", grace.page.text)
    assert entry
    grace.get(f"/logs/{entry[1]}")
    assert "by the playground" in grace.text and "playground=" not in grace.page.text
    assert counted(app, database) == 0, "broken on purpose, and not by the client"
    forged = {"grant_type": CODE, "code": "x", "playground": "yes"}
    assert app.test_client().post("/oauth/token", data=forged, headers=orchard.basic).status_code == 400
    assert counted(app, database) > 0, "no client hides its failures"
    actions = {row[0] for row in database.query("SELECT CAST(action AS CHAR) FROM audit_events")}
    assert {"playground.started", "playground.request_sent"} <= actions


def counted(app: Flask, database: Database) -> int:
    """Write what waits and return the number of counters of failures."""
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()
        counters.flush()
    return int(
        database.query("SELECT COUNT(*) FROM usage_counters WHERE CAST(metric AS CHAR) = 'failed'")[0][0]
    )


def test_grant_of_the_playground_says_so_in_the_audit_log(
    grace: PortalUser, orchard: MadeClient, database: Database
) -> None:
    run = Try(grace, orchard)
    run.redeem(run.come_back())
    [(label,)] = database.query(
        "SELECT actor_label FROM audit_events WHERE CAST(action AS CHAR) = 'grant.created'"
    )
    assert label == "Orchard (playground)"
    [used] = database.query("SELECT last_used_at, pkce_used_at FROM clients")
    assert used == (None, None), "what production is judged by"


def test_stored_run_holds_no_secret_in_clear(
    grace: PortalUser, orchard: MadeClient, database: Database
) -> None:
    run = Try(grace, orchard, scopes=["openid", "offline_access"])
    state, code = run.request["state"], run.come_back()
    run.redeem(code)
    held = (state, code, run.response("access_token"), run.response("refresh_token"))
    assert not any(value.encode() in bytes(row[0]) for row in sealed(database) for value in held)


def sealed(database: Database) -> Any:
    return database.query("SELECT sealed FROM playground_runs")


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


class TestRights:
    """Who may try which client."""

    def test_only_clients_that_the_actor_may_change_are_offered(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
    ) -> None:
        other = make.client(acme, name="Somebody's")
        page = grace.get("/playground")
        assert orchard.client_id in page.text and other.client_id not in page.text
        sent = grace.send("/playground", client=other.client_id, grant_type=CODE)
        assert sent.status_code == 404

    def test_client_with_more_permissions_than_the_actor_is_not_offered(
        self, grace: PortalUser, make: Factory, acme: Any
    ) -> None:
        """Its token would be able to do what the developer is not."""
        with make.app.app_context():
            powerful = make.client(
                acme, by=make.actor(acme, user=grace.user), scopes=["openid", "users:write"]
            )
        page = grace.get(f"/playground?client={powerful.client_id}")
        assert f'value="{powerful.client_id}"' not in page.text
        with make.app.app_context(), pytest.raises(Exception, match="permissions that you don't have"):
            playground.start_run(
                make.actor(acme, "clients:write", "credentials:write", user=grace.user),
                powerful.client_id,
                {"grant_type": CODE, "scopes": [], "prompt": "", "resource": ""},
                browser_id="b",
            )

    @pytest.mark.parametrize(
        "trust", [{"trust": "verified"}, {"trust": "first_party"}, {"approval": "allowed"}]
    )
    def test_owner_without_trust_permission_cannot_act_as_a_trusted_client_with_keys(
        self, grace: PortalUser, portal_user: Any, make: Factory, acme: Any, trust: dict[str, str]
    ) -> None:
        """RU-8: its owner could not replace the keys, so that others may hold them alone."""
        keys = {"token_endpoint_auth_method": "private_key_jwt", "jwks": Signer().jwks}
        client = own_client(
            make,
            acme,
            grace,
            type="machine",
            redirect_uris=[],
            grant_types=["client_credentials"],
            scopes=[],
            **keys,
        )
        run = Try(grace, client, "client_credentials", scopes=[])
        with make.app.app_context():
            update_client(make.system(acme), client.client_id, trust)
        assert f'value="{client.client_id}"' not in grace.get("/playground").text
        assert grace.send(run.path, action="token").status_code == 403
        sent = {"client": client.client_id, "grant_type": "client_credentials"}
        assert b"plr_" not in grace.send("/playground", **sent).data
        with make.app.app_context(), pytest.raises(Forbidden, match="clients:trust"):
            playground.start_run(
                make.actor(acme, "clients:write", "credentials:write", user=grace.user),
                client.client_id,
                {"grant_type": "client_credentials", "scopes": [], "prompt": "", "resource": ""},
                browser_id="b",
            )
        assert Try(portal_user(acme), client, "client_credentials", scopes=[]).press("token")

    def test_auditor_is_refused(self, portal_user: Any, acme: Any) -> None:
        auditor = portal_user(acme, "auditor")
        assert auditor.get("/playground").status_code == 403
        assert auditor.get("/playground/callback").status_code == 403

    def test_run_of_another_organization_is_not_found(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, portal_user: Any
    ) -> None:
        run = Try(grace, orchard)
        globex = make.organization("globex", name="Globex", settings=SETTINGS)
        hank = portal_user(globex)
        assert hank.get(f"/portal/globex/playground/{run.path.rpartition('/')[2]}").status_code == 404
        state = run.request["state"]
        assert hank.get(f"/portal/globex/playground/callback?code=x&state={state}").status_code == 400

    def test_disabled_client_shows_the_real_error(self, grace: PortalUser, make: Factory, acme: Any) -> None:
        machine = own_client(make, acme, grace, type="machine", scopes=[], redirect_uris=[])
        run = Try(grace, machine, "client_credentials", scopes=[])
        with make.app.app_context():
            update_client(make.system(acme), machine.client_id, {"status": "disabled"})
        run.press("token")
        assert run.response("error") == "invalid_client" and "is disabled" in grace.text

    def test_suspended_organization_issues_nothing(
        self, make: Factory, app: Flask, acme: Any, portal_user: Any
    ) -> None:
        machine = make.machine(acme, "clients:read")
        root = root_user(make, app, portal_user)
        run = Try(root, machine, "client_credentials", scopes=["clients:read"])
        with app.app_context():
            update_organization(make.actor(make.root()), "acme", {"status": "suspended"})
        run.press("token")
        assert run.response("error") == "invalid_client"

    def test_root_administrator_can_only_use_flows_without_users(
        self, make: Factory, app: Flask, acme: Any, portal_user: Any, orchard: MadeClient
    ) -> None:
        """A member's code or token never goes to somebody who isn't that member."""
        root = root_user(make, app, portal_user)
        root.get(f"/playground?client={orchard.client_id}")
        assert "only client credentials are possible" in root.text
        with app.app_context(), pytest.raises(Exception, match="not a member of this organization"):
            playground.start_run(
                root_actor(make, root, acme),
                orchard.client_id,
                {"grant_type": CODE, "scopes": [], "prompt": "", "resource": ""},
                browser_id="b",
            )

    def test_late_sign_in_has_to_be_renewed_for_a_client_with_a_secret(
        self, grace: PortalUser, orchard: MadeClient, app: Flask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Try(grace, orchard)
        code = run.come_back()
        with app.app_context():
            later = clock.now() + timedelta(minutes=59)
        monkeypatch.setattr(clock, "now", lambda: later)
        answer = grace.send(run.path, action="token", code=code)
        assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
        assert run.path in unescape(answer.headers["Location"]).replace("%2F", "/")


def root_user(make: Factory, app: Flask, portal_user: Any) -> PortalUser:
    """Return an administrator of root in the portal of acme."""
    found: PortalUser = portal_user(make.root(), email="op@gatehouse.example")
    found.slug, found.base = "acme", "/portal/acme"
    return found


def root_actor(make: Factory, root: PortalUser, organization: Any) -> Any:
    from dataclasses import replace

    actor = make.actor(make.root(), user=root.user)
    return replace(actor.acting_in(organization.id, actor.permissions), session_id=root.user.id)


def test_device_code_flow_gets_tokens_after_the_user_entered_the_code(
    grace: PortalUser, make: Factory, acme: Any
) -> None:
    television = own_client(make, acme, grace, type="device", redirect_uris=[])
    run = Try(grace, television, DEVICE)
    run.press("device")
    assert re.search(r'id="user-code">[A-Z]{4}-[A-Z]{4}<', grace.page.text)
    run.press("token")
    assert run.response("error") == "authorization_pending"
    device = Device(grace.http, make, grace.user)
    device.client = television
    device.allow(run.response("user_code"))
    device.wait()
    run.press("token")
    assert "Signature ✓" in grace.text and run.response("access_token")


def test_new_sign_in_of_the_same_user_continues_the_run(grace: PortalUser, orchard: MadeClient) -> None:
    """``prompt=login`` replaces the session."""
    run = Try(grace, orchard, prompt="login")
    page = grace.http.get(run.authorize().headers["Location"])
    form = Page("", page.status_code, page.text).form_with("login-submit")
    typed = {form.ids["username"]: grace.user.email, form.ids["password"]: grace.user.password}
    resume = grace.http.post(form.action, data=dict(form.values) | typed).headers["Location"]
    page = grace.http.get(resume)
    form = Page("", page.status_code, page.text).form_with("consent-allow")
    body: dict[str, list[str]] = {}
    for name, value in (*form.values, form.buttons["consent-allow"]):
        body.setdefault(name, []).append(value)
    callback = urlsplit(grace.http.post(form.action, data=body).headers["Location"])
    grace.get(f"{callback.path}?{callback.query}")
    assert "state ✓" in grace.text


def test_oldest_runs_are_deleted(grace: PortalUser, orchard: MadeClient, database: Database) -> None:
    for _ in range(playground.MAX_RUNS_PER_USER + 2):
        Try(grace, orchard)
    [(count,)] = database.query("SELECT COUNT(*) FROM playground_runs")
    assert count == playground.MAX_RUNS_PER_USER
