"""Who may try which client in the playground."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.authorization import playground
from app.operations.clients.clients import update_client
from app.operations.organizations.organizations import update_organization
from app.operations.store import clock
from app.rules.errors import Forbidden
from tests.factories import Factory, MadeClient
from tests.portal.conftest import PortalUser
from tests.portal.playground.conftest import CODE, SETTINGS, Try, own_client
from tests.support.signer import Signer


class TestRights:
    """Who may try which client."""

    def test_only_clients_that_the_actor_may_change_are_offered(
        self, grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
    ) -> None:
        other = make.client(acme, name="Somebody's")
        page = grace.get("/playground")
        assert orchard.client_id in page.text and other.client_id not in page.text
        # The form is sent to a URL to which a sign-in can lead back.
        chosen = f"/portal/acme/playground?client={orchard.client_id}&grant_type={CODE}"
        assert f'action="{chosen}"' in unescape(page.text)
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
    actor = make.actor(make.root(), user=root.user)
    return replace(actor.acting_in(organization.id, actor.permissions), session_id=root.user.id)
