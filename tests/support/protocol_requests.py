"""A valid request for each endpoint of OAuth and OpenID Connect, of devices, probes and documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from app.extensions import db
from app.models.client import ClientLogo
from app.operations.clients import resources
from app.operations.store import clock
from app.operations.tokens import status_lists
from app.rules.clients.client_types import TOKEN_EXCHANGE
from app.rules.identifiers import public_id
from app.rules.tokens.token_exchange import ACCESS_TOKEN_TYPE
from tests.factories import bearer_header
from tests.oauth.conftest import REDIRECT_URI, SCOPES, VERIFIER, Flow, location
from tests.oauth.device import GRANT as DEVICE_GRANT
from tests.oauth.device import Device
from tests.support import registering
from tests.support.pictures import PNG
from tests.support.request_world import SAME_ORIGIN, RequestWorld, ValidRequest, cookies_of


class ProtocolRequests(RequestWorld):
    """The endpoints without pages, and the pages of authorization."""

    def protocol(self) -> Iterator[ValidRequest]:
        """The endpoints of OAuth and OpenID Connect, of devices, probes and documents."""
        yield from self._documents()
        make, organization = self.make, self.organization
        trusted = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
        flow = Flow(self.app, self.app.test_client(), make, trusted, make.user(organization))
        flow.sign_in()
        oauth, basic = f"{self.home}/oauth", trusted.basic

        def post(name: str, path: str, form: Any, headers: dict[str, str] = basic) -> ValidRequest:
            return ValidRequest(f"oauth.{name}", "POST", path, headers=headers, form=form)

        machine = make.machine(organization, "clients:read")
        form = {"grant_type": "client_credentials"}
        yield post("token client_credentials", f"{oauth}/token", form, machine.basic)
        form = {"grant_type": "authorization_code", "redirect_uri": REDIRECT_URI, "code_verifier": VERIFIER}
        code = flow.code(scope=" ".join(SCOPES))
        yield post("token authorization_code", f"{oauth}/token", form | {"code": code})
        tokens = flow.tokens()
        refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        yield post("token refresh_token", f"{oauth}/token", refresh)
        yield post("introspect", f"{oauth}/introspect", {"token": tokens["access_token"]})
        yield post("revoke access_token", f"{oauth}/revoke", {"token": tokens["access_token"]})
        yield post("revoke refresh_token", f"{oauth}/revoke", {"token": tokens["refresh_token"]})
        bearer = bearer_header(tokens["access_token"])
        yield ValidRequest("oauth.userinfo", "GET", f"{oauth}/userinfo", headers=bearer)
        yield post("userinfo", f"{oauth}/userinfo", {}, bearer)
        yield post("push", f"{oauth}/par", flow.parameters())
        yield from self._exchange(flow)
        yield from self._device()
        yield from self._registration()
        yield from self._authorization(flow)
        yield from self._logout(flow, str(tokens["id_token"]))

    def _documents(self) -> Iterator[ValidRequest]:
        known = ".well-known"
        for document in ("openid-configuration", "oauth-authorization-server"):
            yield ValidRequest(f"discovery.appended_{document}", "GET", f"{self.home}/{known}/{document}")
            yield ValidRequest(f"discovery.inserted_{document}", "GET", f"/{known}/{document}{self.home}")
            yield ValidRequest(f"discovery.root_{document}", "GET", f"/{known}/{document}")
        path = f"/{known}/oauth-protected-resource/management"
        yield ValidRequest("discovery.protected_resource", "GET", path)
        yield ValidRequest("oauth.jwks", "GET", f"{self.home}/oauth/jwks")
        with self.app.app_context():
            list_id, _ = status_lists.take_index(self.organization)
        lists = f"{self.home}/oauth/status-lists"
        yield ValidRequest("oauth.status_lists", "GET", lists)
        yield ValidRequest("oauth.status_list", "GET", f"{lists}/{public_id(status_lists.PREFIX, list_id)}")
        yield ValidRequest("health.alive", "GET", "/healthz")
        yield ValidRequest("health.ready", "GET", "/readyz")
        yield ValidRequest("security_txt.show", "GET", f"/{known}/security.txt")
        yield ValidRequest("static", "GET", "/static/app.css")
        found = re.search(
            r"/logos/organizations/[^\"]+", self.app.test_client().get(f"{self.home}/login").text
        )
        assert found is not None
        yield ValidRequest("logos.organization", "GET", found[0])
        client = self.make.client(self.organization).registered.client
        with self.app.app_context():
            picture_digest = hashlib.sha256(PNG).digest()
            db.session.add(
                ClientLogo(
                    organization_id=self.organization.id,
                    id=client.id,
                    source_digest=bytes(32),
                    digest=picture_digest,
                    picture=PNG,
                    fetched_at=clock.now(),
                )
            )
            db.session.commit()
        yield ValidRequest("logos.show", "GET", f"/logos/{client.client_id}/{picture_digest.hex()}.png")

    def _exchange(self, flow: Flow) -> Iterator[ValidRequest]:
        orders = "https://orders.example"
        with self.app.app_context():
            actor = self.make.actor(self.organization)
            for identifier in (orders, "https://stock.example"):
                name = identifier[8:].partition(".")[0]
                fields = {"identifier": identifier, "name": name, "scopes": [{"name": f"{name}:read"}]}
                resources.define_resource(actor, fields)
        scopes = ["orders:read", "stock:read"]
        client = flow.other_client(
            scopes=[*SCOPES, *scopes], trust="first_party", redirect_uris=[REDIRECT_URI]
        )
        subject = client.tokens(scope="orders:read stock:read offline_access")["access_token"]
        service = self.make.client(
            self.organization,
            name="Orders API",
            type="machine",
            redirect_uris=[],
            scopes=scopes,
            resources=[orders],
            grant_types=["client_credentials", TOKEN_EXCHANGE],
            token_exchange="delegation",
        )
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": subject,
            "subject_token_type": ACCESS_TOKEN_TYPE,
            "resource": "https://stock.example",
        }
        path = f"{self.home}/oauth/token"
        yield ValidRequest("oauth.token exchange", "POST", path, headers=service.basic, form=form)

    def _device(self) -> Iterator[ValidRequest]:
        http, user = self.app.test_client(), self.make.user(self.organization)
        device = Device(http, self.make, user)
        self.make.sign_in(user, http)
        form = {"client_id": device.client.client_id, "scope": "openid profile"}
        path = f"{self.home}/oauth/device_authorization"
        yield ValidRequest("oauth.device_authorization", "POST", path, form=form)
        codes = device.code()
        polled = {"grant_type": DEVICE_GRANT, "device_code": codes["device_code"]}
        polled["client_id"] = device.client.client_id
        yield ValidRequest("oauth.token device pending", "POST", f"{self.home}/oauth/token", form=polled)
        page, cookies = device.page_path, cookies_of(http)
        yield ValidRequest("device.choose", "GET", "/device", cookies)
        yield ValidRequest("device.enter", "GET", f"{page}?user_code={codes['user_code']}", cookies)
        entered = {"user_code": codes["user_code"]}
        shown = http.post(page, data=entered, headers=SAME_ORIGIN)
        yield ValidRequest("device.decide enter", "POST", page, cookies, SAME_ORIGIN, form=entered)
        for button in ("device-continue", "consent-allow"):
            form = self._press(shown, button)
            yield ValidRequest(f"device.decide {button}", "POST", page, cookies, SAME_ORIGIN, form=form)
            shown = http.post(page, data=form, headers=SAME_ORIGIN)
        with self.app.app_context():
            past = clock.now() - timedelta(minutes=1)
        device.change(next_poll_at=past)
        yield ValidRequest("oauth.token device", "POST", f"{self.home}/oauth/token", form=polled)

    def _registration(self) -> Iterator[ValidRequest]:
        path = f"{self.home}/oauth/register"
        yield ValidRequest("oauth.register_registration", "POST", path, json=registering.GOOD)
        told = registering.register(self.app.test_client(), self.organization).get_json()
        path = urlsplit(told["registration_client_uri"]).path
        own = bearer_header(told["registration_access_token"])
        yield ValidRequest("oauth.show_registration", "GET", path, headers=own)
        body = registering.GOOD | {"client_id": told["client_id"], "client_name": "Renamed"}
        yield ValidRequest("oauth.replace_registration", "PUT", path, headers=own, json=body)
        yield ValidRequest("oauth.remove_registration", "DELETE", path, headers=own)

    def _authorization(self, flow: Flow) -> Iterator[ValidRequest]:
        path, cookies = f"{self.home}/oauth/authorize", cookies_of(flow.http)

        def stored(at: Flow, **changes: str) -> str:
            return location(at.http.get(path, query_string=at.parameters(**changes)))

        query = urlencode(flow.parameters())
        yield ValidRequest("oauth.authorize", "GET", f"{path}?{query}", cookies)
        yield ValidRequest("oauth.authorize", "POST", path, cookies, form=flow.parameters())
        pushed = flow.http.post(f"{self.home}/oauth/par", data=flow.parameters(), headers=flow.client.basic)
        pair = {"client_id": flow.client.client_id, "request_uri": pushed.get_json()["request_uri"]}
        yield ValidRequest("oauth.authorize pushed", "GET", f"{path}?{urlencode(pair)}", cookies)
        asking = flow.other_client(redirect_uris=[REDIRECT_URI])
        query = urlencode(asking.parameters())
        yield ValidRequest("oauth.authorize consent", "GET", f"{path}?{query}", cookies)
        resume = stored(asking)
        cookies = cookies_of(flow.http)
        yield ValidRequest("interaction.resume", "GET", resume, cookies)
        page = flow.http.get(resume)
        for button in ("consent-allow", "consent-deny"):
            form = self._press(page, button)
            decision = f"{path}/decision"
            yield ValidRequest(
                f"interaction.decide {button}", "POST", decision, cookies, SAME_ORIGIN, form=form
            )
        select = stored(flow, prompt="select_account")
        cookies = cookies_of(flow.http)
        yield ValidRequest("interaction.select_account", "GET", select, cookies)
        form = {"request": select.partition("request=")[2], "account": flow.user.public_id}
        yield ValidRequest(
            "interaction.select_account", "POST", f"{path}/account", cookies, SAME_ORIGIN, form=form
        )

    def _logout(self, flow: Flow, hint: str) -> Iterator[ValidRequest]:
        path, cookies = f"{self.home}/oauth/logout", cookies_of(flow.http)
        yield ValidRequest("oauth.logout", "GET", f"{path}?id_token_hint={hint}", cookies)
        yield ValidRequest("oauth.logout", "POST", path, cookies, form={"id_token_hint": hint})
        page = flow.http.get(path)
        form = self._press(page, "logout-confirm")
        yield ValidRequest(
            "interaction.confirm_logout", "POST", f"{path}/confirm", cookies, SAME_ORIGIN, form=form
        )
