"""A valid request for each route and method: signed in, authenticated, and with what it needs in place.

Making them changes the database, sending them is left to the tests. A form is read in one browser and sent by another
client with its cookies, so CSRF protection has to be off.
"""

from __future__ import annotations

import hashlib
import io
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pyotp
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.client import ClientLogo
from app.models.session import KnownBrowser
from app.operations.clients import credentials, resources
from app.operations.sign_in.sessions import start_session
from app.operations.store import clock
from app.operations.tokens import status_lists
from app.operations.users import import_runner
from app.operations.users.groups import add_member
from app.operations.users.invitations import create_invitation
from app.operations.users.password_resets import issue_reset_link
from app.rules.identifiers import ACCESS_TOKEN, new_id, new_token, public_id
from app.rules.organizations.settings_table import GRANT_TYPES
from app.rules.tokens.token_exchange import ACCESS_TOKEN_TYPE, GRANT_TYPE
from tests.account.test_passkeys import asked
from tests.factories import PASSWORD, Factory, MadeUser, bearer_header
from tests.oauth.conftest import REDIRECT_URI, SCOPES, VERIFIER, Flow, location
from tests.oauth.device import GRANT as DEVICE_GRANT
from tests.oauth.device import Device
from tests.support import importing, registering, world_rows
from tests.support.authenticator import with_app
from tests.support.form_browser import Forms, Page
from tests.support.mail_server import Mailbox
from tests.support.matrix import BODIES, world_of
from tests.support.pictures import PNG, picture
from tests.support.security_key import Authenticator as SecurityKey

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}
SETTINGS = {
    "authentication": {
        "registration": {"mode": "open"},
        "passkeys": {"passwordless": True},
        "mfa": {"policy": "optional"},
    },
    "user_permissions": {"members_can_delete_account": True},
    "oauth": {
        "signing": {"algorithm": "ES256"},
        "dynamic_registration": {"mode": "open"},
        "grant_types": [*GRANT_TYPES, GRANT_TYPE],
    },
}
_VARIABLE = re.compile(r"<(?:[^:>]+:)?([^>]+)>")
# Values that make an empty field valid, by the last part of its name.
TYPED: dict[str, str] = {
    "name": "Orchard",
    "email": "newcomer@example.com",
    "identifier": "https://api.example/",
    "id": "role-1",
    "slug": "org-1",
    "url": "https://hooks.example/1",
    "password": PASSWORD,
    "current_password": PASSWORD,
    "new_password": "five small otters on a raft",
    "redirect_uris": "https://orchard.example/callback",
    "confirm": "acme-corner",
    "reason": "For the harvest.",
}

ATTRIBUTE = {"type": "string", "editable_by": "administrator", "scope": "profile"}
# Fields of forms of the portal whose page does not fill them in, or whose changed values make the form do something.
FORMS: dict[str, dict[str, Any]] = {
    "portal.new_client": {"name": "Harvester"},
    "portal.client_details": {"name": "Renamed", "is_active": "1"},
    "portal.client_redirects": {"redirect_uris": "https://orchard.example/other"},
    "portal.client_advanced": {
        "grant_types": ["authorization_code", "refresh_token", "client_credentials"],
        "token_endpoint_auth_method": "client_secret_post",
        "access_token_format": "jwt",
    },
    "portal.new_revocation": {"revoke": "1", "reason": "Laptop lost", "issued_before": "2020-01-01T00:00:00"},
    "portal.new_api": {
        "name": "Orders",
        "identifier": "https://new.example/api",
        "scopes-0-name": "new:read",
        "scopes-1-name": "",
        "scopes-2-name": "",
        "access_policy": "open",
    },
    "portal.api_page": {
        "name": "Renamed",
        "is_active": "1",
        "access_policy": "open",
        **{f"scopes-{line}-name": "" for line in range(4)},
    },
    "portal.delete_api": {"name": "API"},
    "portal.scope_page": {"title": "Read plain things"},
    "portal.new_role": {
        "key": "support",
        "name": "Support",
        "permissions": ["users:read"],
        "more_permissions": "",
    },
    "portal.role": {"remove": "1"},
    "portal.organization_delete": {"slug": "acme-corner"},
    "portal.organization_page": {"resume": "1"},
    "portal.delete": {"slug": "acme-corner"},
    "portal.general": {"name": "Renamed"},
    "portal.rotate_keys": {"algorithm": "EdDSA"},
    "portal.setting_topic": {"branding.theme": "dark"},
    "portal.webhook_new": {"url": "https://hooks.example/new", "groups": "user.*", "event_types": ""},
    "portal.webhook_edit": {"url": "https://hooks.example/changed", "groups": "user.*", "event_types": ""},
    "portal.instance_limit": {"max": "3600"},
    "portal.group_page": {"email": "picker@example.com"},
    "portal.assign_client_role": {"role": "editor", "email": "picker@example.com"},
    "portal.attribute_new": {**ATTRIBUTE, "name": "Cost center", "key": "cost_center"},
    "portal.attribute_page": {**ATTRIBUTE, "name": "Division"},
}
FILES = {
    "portal.logo_upload": ("logo", "logo.png", PNG),
    "portal.import_upload": ("file", "u.csv", b"email\na@b.example\n"),
}


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """One request; ``name`` is its endpoint, with what distinguishes it after a space."""

    name: str
    method: str
    path: str
    cookies: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    form: Any = None
    json: Any = None
    body: bytes | None = None
    content_type: str | None = None
    file: tuple[str, str, bytes] | None = None

    def send(self, app: Flask) -> TestResponse:
        """Send it with its cookies and return the response."""
        headers = {"Accept": "*/*", "User-Agent": "tests"} | self.headers
        if self.cookies:
            headers["Cookie"] = self.cookies
        sent: dict[str, Any] = {"headers": headers, "method": self.method}
        if self.file is not None:
            sent["data"] = {**(self.form or {}), self.file[0]: (io.BytesIO(self.file[2]), self.file[1])}
            sent["content_type"] = "multipart/form-data"
        elif self.json is not None:
            sent["json"] = self.json
        elif self.body is not None:
            sent |= {"data": self.body, "content_type": self.content_type}
        elif self.form is not None:
            sent["data"] = {name: value() if callable(value) else value for name, value in self.form.items()}
        return app.test_client(use_cookies=False).open(self.path, **sent)


def cookies_of(http: FlaskClient) -> str:
    """Return the Cookie header that the browser sends."""
    return str(http.get("/healthz").request.headers.get("Cookie", ""))


def form_of(page: TestResponse, path: str, **typed: Any) -> dict[str, Any]:
    """Return the filled fields of the page's form that is sent to the path."""
    reader = Forms()
    reader.feed(page.text)
    forms = [
        each for each in reader.forms if each.method == "POST" and urlsplit(each.action).path in {"", path}
    ]
    values: dict[str, Any] = {}
    for name, value in forms[-1].values if forms else ():
        filled = value or TYPED.get(name.rpartition("-")[2], "")
        values[name] = [*values[name], filled] if name in values else [filled]
    return values | typed


class Requests:
    """Makes the requests in one organization that has everything, ``acme-corner``."""

    def __init__(self, app: Flask, make: Factory, box: Mailbox, deliver: Callable[[], int]) -> None:
        self.app, self.make, self.box, self.deliver = app, make, box, deliver
        self.root = make.root()
        self.world = world_of(app, app.test_client(), make)
        self.corner = self.world.acme
        self.organization = self.corner.organization
        self.home = f"/organizations/{self.organization.slug}"
        self._change_settings()
        self.ids = dict(self.corner.ids)
        self._fill()

    def _change_settings(self) -> None:
        sent = {"json": SETTINGS, "headers": bearer_header(self.world.token)}
        answer = self.app.test_client().put(f"{self.home}/settings", **sent)
        assert answer.status_code == 200, answer.text

    def _fill(self) -> None:
        """Add what no other test's world has: a rotation, a checked import, an approved access, second factors."""
        corner, make = self.corner, self.make
        with self.app.app_context():
            actor = make.actor(self.organization)
            self.single = make.client(self.organization)
            self.rotating = make.client(self.organization)
            credentials.create_credential(actor, self.rotating.client_id)
            by = importing.admin(make, self.organization)
            checked = importing.begin(by, "email\nchecked@example.com\nnobody\n", dry=True)
            import_runner.run_import(by, checked.public_id)
            self.waiting_import = importing.begin(actor, "email\nwaits@example.com\n", dry=True).public_id
            api = resources.define_resource(
                actor,
                {"identifier": "https://given.example", "name": "Given", "scopes": [{"name": "given:read"}]},
            )
            self.free_resource = api.public_id
            self.approved = world_rows.access_requested(corner.client, api.public_id, status="granted")
            other = resources.define_resource(
                actor, {"identifier": "https://free.example", "name": "Free", "access_policy": "approval"}
            )
            self.requestable = other.public_id
        self.ids["importId"] = checked.public_id
        rotation = f"/clients/{self.rotating.client_id}/credentials/rotation"
        answer = self.app.test_client().post(rotation, json={}, headers=bearer_header(self.world.token))
        assert answer.status_code == 201, answer.text
        own = bearer_header(self.world.token)
        answer = self.app.test_client().put(
            f"{self.home}/logo", data=picture((0, 0, 200)), content_type="image/png", headers=own
        )
        assert answer.status_code == 200, answer.text
        self.secured = make.user(self.organization)
        self.phone = with_app(self.app, self.secured)
        self.ids["userId"] = self.secured.public_id
        with self.app.app_context():
            actor, slug = make.actor(self.organization), self.organization.slug
            add_member(actor, slug, self.ids["groupId"], {"user_id": self.secured.public_id})
            _, session = start_session(self.organization, self.secured.id)
        self.ids["sessionId"] = public_id("ses", session)

    # Management API

    def management(self) -> Iterator[ValidRequest]:
        """Every documented operation of the management API."""
        of_root = bearer_header(self.make.bearer(self.root))
        own = bearer_header(self.world.token)
        spent = self.make.bearer(self.organization, "clients:read")
        special: dict[str, dict[str, str]] = {
            "cancelUserImport": {"importId": self.waiting_import},
            "createCredential": {"clientId": self.single.client_id},
            "rotateCredential": {"clientId": self.single.client_id},
            "withdrawClientAccess": {"clientAccessId": self.approved},
            "requestClientAccess": {"resourceId": self.requestable},
            "giveClientAccess": {"resourceId": self.requestable},
        }
        for operation in ("getRotation", "updateRotation", "cancelRotation"):
            special[operation] = {"clientId": self.rotating.client_id}
        for operation in self.world.operations:
            path = operation.path
            for name, value in (self.ids | special.get(operation.id, {})).items():
                path = path.replace(f"{{{name}}}", value)
            body = BODIES[operation.id]
            if operation.id == "revokeToken":
                body = {
                    "organization_id": self.organization.slug,
                    "token_type": "access_token",
                    "token": spent,
                }
            if operation.id == "revokeTokens":
                # Older than everything, so that the token that sends it stays valid.
                body = {"all": True, "issued_before": "2020-01-01T00:00:00Z"}
            is_of_root = operation.id in {"createOrganization", "getInstanceLimits", "updateInstanceLimits"}
            yield ValidRequest(
                f"api.{operation.id}",
                operation.method.upper(),
                path,
                headers=(of_root if is_of_root else own) | {"Idempotency-Key": operation.id},
                json=None if isinstance(body, bytes) else body,
                body=body if isinstance(body, bytes) else None,
                content_type="image/png",
            )
        token = self.make.client(self.organization)
        yield ValidRequest(
            "api.report_leaks",
            "POST",
            "/leak-reports",
            json=[
                {"token": token.secret, "type": "gatehouse", "url": "https://a.example/", "source": "commit"}
            ],
        )
        yield ValidRequest("api.get_openapi", "GET", "/openapi.json")

    # Pages

    def signed_in(
        self, *, role: str | None = "admin", factors: bool = True
    ) -> tuple[MadeUser, FlaskClient, Any]:
        """Return a new user, a browser in which it is signed in, and the session's id."""
        user, http = self.make.user(self.organization, role=role), self.app.test_client()
        with self.app.app_context():
            if factors:
                with_app(self.app, user)
            token, session = start_session(
                self.organization, user.id, amr="pwd otp mfa", ip_address="127.0.0.1", user_agent="tests"
            )
        http.set_cookie(self.make.cookie_name(self.organization), token, domain="localhost")
        return user, http, session

    def values(self) -> dict[str, str]:
        """Return the values of the routes' variables."""
        ids = self.ids
        return {
            "organization": self.organization.slug,
            "slug": self.organization.slug,
            "client_id": ids["clientId"],
            "credential_id": ids["credentialId"],
            "admin_id": ids["adminId"],
            "api_id": ids["resourceId"],
            "event_id": ids["auditEventId"],
            "grant_id": ids["grantId"],
            "access_token_id": ids["tokenId"],
            "revocation_id": ids["revocationId"],
            "file_format": "csv",
            "failed_request_id": ids["failedRequestId"],
            "invitation_id": ids["invitationId"],
            "session_id": ids["sessionId"],
            "access_id": ids["clientAccessId"],
            "request_id": ids["clientRequestId"],
            "registration_id": ids["registrationId"],
            "token_id": ids["registrationTokenId"],
            "webhook_id": ids["webhookId"],
            "delivery_id": ids["deliveryId"],
            "user_id": ids["userId"],
            "assignment_id": ids["assignmentId"],
            "group_id": ids["groupId"],
            "import_id": ids["importId"],
            "role": ids["roleId"],
            "scope_name": ids["scopeName"],
            "setting": "oauth.access_token.ttl_seconds",
            "topic": "branding",
            "key": "department",
            "algorithm": "ES256",
            "color": "336699",
            "guide": "first-client",
            "operation_id": "getMe",
        }

    def portal(self) -> Iterator[ValidRequest]:
        """Every page and form of the portal, as a new administrator with a second factor, who also has root."""
        _, http, _ = self.signed_in()
        self.make.sign_in(self.make.user(self.root, role="admin"), http)
        run, callback = self._playground(http)
        cookies = cookies_of(http)
        self._refuse_redirect(http)
        with self.app.app_context():
            values = self.values() | {"run_id": run}
        for rule in self.app.url_map.iter_rules():
            endpoint = rule.endpoint
            if not endpoint.startswith("portal.") or endpoint.startswith("portal.setup"):
                continue
            is_of_root = endpoint.startswith(
                ("portal.instance", "portal.organization", "portal.new_organization", "portal.test_email")
            )
            named = values | ({"organization": "root"} if is_of_root else {}) | self._own(endpoint)
            path = _VARIABLE.sub(lambda match, named=named: quote(named[match[1]]), rule.rule)
            methods = (rule.methods or set()) & {"GET", "POST"}
            queries = {"portal.new_client": "?type=machine", "portal.playground_callback": callback}
            address = path + queries.get(endpoint, "")
            for method in sorted(methods):
                form = None
                if method == "POST":
                    page = path.removesuffix("/fix") if endpoint == "portal.fix_request" else address
                    read = form_of(http.get(page), path) if "GET" in methods or page != address else {}
                    form = read | FORMS.get(endpoint, {}) | self._typed(endpoint)
                file = FILES.get(endpoint)
                yield ValidRequest(endpoint, method, address, cookies, SAME_ORIGIN, form=form, file=file)

    def _own(self, endpoint: str) -> dict[str, str]:
        """Return the ids that the page needs instead of the usual ones."""
        own = {
            "portal.withdraw_client_access": {"access_id": self.approved},
            "portal.request_api_access": {"api_id": self.requestable},
            "portal.new_secret": {"client_id": self.single.client_id},
            "portal.import_cancel": {"import_id": self.waiting_import},
            "portal.api_clients": {"api_id": self.requestable},
            "portal.api_page": {"api_id": self.requestable},
            "portal.fix_request": {"failed_request_id": self.refused_redirect},
        }
        if endpoint.endswith("rotation"):
            return {"client_id": self.rotating.client_id}
        return own.get(endpoint, {})

    def _typed(self, endpoint: str) -> dict[str, str]:
        """Return the values that name things of this organization."""
        if endpoint == "portal.delete_user_page":
            return {"email": self.secured.email}
        if endpoint == "portal.token_inspector":
            return {"token": new_token(ACCESS_TOKEN, self.organization.id)}
        if endpoint == "portal.playground_home":
            return {"client": self.single.client_id, "grant_type": "authorization_code", "prompt": ""}
        return {"client_id": self.single.client_id} if endpoint == "portal.api_clients" else {}

    def _playground(self, http: FlaskClient) -> tuple[str, str]:
        """Return a run of a machine client in this browser, and the query of the callback of another run."""
        machine = self.make.machine(self.organization, "clients:read")
        home = f"/portal/{self.organization.slug}/playground"
        started = []
        for client, grant_type in ((machine, "client_credentials"), (self.single, "authorization_code")):
            address = f"{home}?client={client.client_id}"
            chosen = {"client": client.client_id, "grant_type": grant_type, "prompt": ""}
            answer = http.post(
                home, data=form_of(http.get(address), home) | chosen, headers=dict(SAME_ORIGIN)
            )
            started.append(answer.headers["Location"])
        state = re.search(r"state=([\w-]+)", http.get(started[1]).text)
        assert state is not None
        query = {"code": "x", "state": state[1], "iss": self.organization.issuer}
        return started[0].rpartition("/")[2], f"?{urlencode(query)}"

    def _refuse_redirect(self, http: FlaskClient) -> None:
        """Let an authorization request fail because of its redirect URI."""
        query = {"client_id": self.corner.client.client_id, "response_type": "code"}
        query["redirect_uri"] = "https://orchard.example/callback/"
        assert http.get("/oauth/authorize", query_string=query).status_code == 400
        with self.app.app_context():
            self.app.extensions["failed_requests"].write_waiting()
        answer = self.app.test_client().get("/logs/failed-requests", headers=bearer_header(self.world.token))
        self.refused_redirect = answer.get_json()["data"][0]["id"]

    def account(self) -> Iterator[ValidRequest]:
        """Every page before and after a member's sign-in."""
        yield from self._account_pages()
        yield from self._factor_pages()
        yield from self._sign_in_pages()
        yield from self._links()

    def _both(self, name: str, path: str, http: FlaskClient, /, **typed: Any) -> Iterator[ValidRequest]:
        """Return the page and its form, sent from the browser."""
        cookies = cookies_of(http)
        yield ValidRequest(f"account.{name}", "GET", path, cookies)
        form = form_of(http.get(path), urlsplit(path).path)
        yield ValidRequest(f"account.{name}", "POST", path, cookies_of(http), SAME_ORIGIN, form=form | typed)

    def _account_pages(self) -> Iterator[ValidRequest]:
        user, http, _ = self.signed_in(role=None)
        base, cookies = f"{self.home}/account", cookies_of(http)
        with self.app.app_context():
            consent = world_rows.consented(self.make.client(self.organization), user)
        for name, path in {
            "start_page": "/",
            "choose_organization": "/login",
            "account_home": base,
            "activity_page": f"{base}/activity",
            "apps_page": f"{base}/apps",
            "remove_app_page": f"{base}/apps/{consent}/remove",
            "security_page": f"{base}/security",
            "passkeys_page": f"{base}/security/passkeys",
            "sessions_page": f"{base}/sessions",
            "sign_out_page": f"{self.home}/logout",
        }.items():
            yield ValidRequest(f"account.{name}", "GET", path, cookies)
        with self.app.app_context():
            _, other = start_session(self.organization, user.id)
        known = self._known_browser(user)
        for name, path in {
            "remove_app": f"{base}/apps/{consent}/remove",
            "end_one_session": f"{base}/sessions/{public_id('ses', other)}/end",
            "end_all_other_sessions": f"{base}/sessions/end-others",
            "remove_browser": f"{base}/sessions/known/{known}/forget",
            "sign_out": f"{self.home}/logout",
        }.items():
            yield ValidRequest(f"account.{name}", "POST", path, cookies, SAME_ORIGIN, form={})
        yield from self._both("delete_account_page", f"{base}/delete", http, email=user.email)
        yield from self._both("email_page", f"{base}/email", http)
        yield from self._both("change_password_page", f"{base}/password", http)
        yield from self._both("profile_page", f"{base}/profile", http, name="Renamed")

    def _known_browser(self, user: MadeUser) -> str:
        """Add a browser in which the user is recognized and return its id."""
        with self.app.app_context():
            row_id, now = new_id(), clock.now()
            db.session.add(
                KnownBrowser(
                    organization_id=self.organization.id,
                    id=row_id,
                    digest=secrets.token_bytes(32),
                    user_id=user.id,
                    created_at=now,
                    last_used_at=now,
                    expires_at=now + timedelta(days=1),
                )
            )
            db.session.commit()
        return public_id("kbr", row_id)

    def _factor_pages(self) -> Iterator[ValidRequest]:
        base = f"{self.home}/account/security"
        _, http, _ = self.signed_in(role=None, factors=False)
        key = SecurityKey(counter=None)
        page = http.get(f"{base}/passkeys/add")
        yield ValidRequest("account.add_passkey_page", "GET", f"{base}/passkeys/add", cookies_of(http))
        form = {"answer": key.create(asked(page)), "name": "Phone"}
        added = ValidRequest(
            "account.add_passkey_page",
            "POST",
            f"{base}/passkeys/add",
            cookies_of(http),
            SAME_ORIGIN,
            form=form,
        )
        yield added
        _, http, _ = self.signed_in(role=None, factors=False)
        yield from self._both("add_app_page", f"{base}/app", http, **self._new_app(http.get(f"{base}/app")))
        _, http, _ = self.signed_in(role=None)
        yield from self._both("remove_app_factor_page", f"{base}/app/remove", http)
        yield from self._both("recovery_codes_page", f"{base}/recovery-codes", http)
        _, http, _ = self._with_passkey()
        found = re.search(r"passkeys/(pky_\w+)", http.get(f"{base}/passkeys").text)
        assert found is not None
        yield from self._both("passkey_page", f"{base}/passkeys/{found[1]}", http, name="Renamed")
        path = f"{base}/passkeys/{found[1]}/remove"
        yield ValidRequest(
            "account.remove_passkey_action", "POST", path, cookies_of(http), SAME_ORIGIN, form={}
        )

    def _new_app(self, page: TestResponse) -> dict[str, Any]:
        """Return the fields of the page's form that set up the authenticator app that it shows."""
        key = re.search(r'id="app-key">([^<]+)<', page.text)
        sealed = re.search(r'name="secret" value="([^"]+)"', page.text)
        assert key and sealed, page.text
        phone = pyotp.TOTP(key[1].replace(" ", ""))

        def code() -> str:
            with self.app.app_context():
                return phone.at(clock.now())

        return {"secret": sealed[1], "code": code}

    def _with_passkey(self) -> tuple[MadeUser, FlaskClient, SecurityKey]:
        """Return a member with a passkey, signed in."""
        user, http, _ = self.signed_in(role=None, factors=False)
        key, path = SecurityKey(counter=None), f"{self.home}/account/security/passkeys/add"
        answer = http.post(
            path, data={"answer": key.create(asked(http.get(path))), "name": "Phone"}, headers=SAME_ORIGIN
        )
        assert answer.status_code == 303, answer.text
        return user, http, key

    def _sign_in_pages(self) -> Iterator[ValidRequest]:
        plain, login = self.make.user(self.organization), f"{self.home}/login"
        typed = {"email": plain.email, "password": PASSWORD}
        yield from self._both("sign_in_page", login, self.app.test_client(), **typed)
        wrong = typed | {"password": "nothing of the kind"}
        yield ValidRequest("account.sign_in_page refused", "POST", login, "", SAME_ORIGIN, form=wrong)
        phone = with_app(self.app, plain)
        http, step = self._first_step(plain)
        phone.code()
        yield from self._both("verify_page", step, http, code=phone.shown)
        user, _, key = self._with_passkey()
        http = self.app.test_client()
        yield ValidRequest("account.passkey_options", "GET", f"{login}/passkey", cookies_of(http))
        form = {"answer": key.get(asked(http.get(login)))}
        yield ValidRequest(
            "account.sign_in_by_passkey", "POST", f"{login}/passkey", cookies_of(http), SAME_ORIGIN, form=form
        )
        http, step = self._first_step(user)
        form = {"sign_in": step.partition("sign_in=")[2], "answer": key.get(asked(http.get(step)))}
        path = f"{login}/verify/passkey"
        yield ValidRequest(
            "account.verify_with_passkey", "POST", path, cookies_of(http), SAME_ORIGIN, form=form
        )
        self._require_factors()
        http, step = self._first_step(self.make.user(self.organization))
        yield from self._both("enrol_page", step, http, **self._new_app(http.get(step)))
        http, step = self._first_step(self.make.user(self.organization))
        form = {
            "sign_in": step.partition("sign_in=")[2],
            "answer": SecurityKey(counter=None).create(asked(http.get(step))),
            "name": "Phone",
        }
        path = f"{login}/enrol/passkey"
        yield ValidRequest("account.enrol_passkey", "POST", path, cookies_of(http), SAME_ORIGIN, form=form)
        yield ValidRequest("account.enrolled_page", "GET", f"{login}/enrolled", cookies_of(http))
        self._change_settings()

    def _require_factors(self) -> None:
        sent = {"authentication": {"mfa": {"policy": "required"}}}
        answer = self.app.test_client().put(
            f"{self.home}/settings", json=sent, headers=bearer_header(self.world.token)
        )
        assert answer.status_code == 200, answer.text

    def _first_step(self, user: MadeUser) -> tuple[FlaskClient, str]:
        """Enter the password in a new browser; return it and the path of the second step."""
        http = self.app.test_client()
        form = {"email": user.email, "password": PASSWORD}
        answer = http.post(f"{self.home}/login", data=form, headers=SAME_ORIGIN)
        assert answer.status_code == 303 and "sign_in=" in location(answer), location(answer)
        return http, location(answer)

    def _links(self) -> Iterator[ValidRequest]:
        """The pages that links in emails lead to, and those that request one."""
        user, http, _ = self.signed_in(role=None)
        http.post(f"{self.home}/account/email", data={"email": "moved@example.com"}, headers=SAME_ORIGIN)
        yield from self._both("verify_email_page", self._mailed("confirm-address"), http)
        visitor = self.app.test_client()
        sign_up = {"name": "New", "email": "signs.up@example.com", "password": PASSWORD}
        yield from self._both("sign_up_page", f"{self.home}/register", visitor, **sign_up)
        visitor.post(f"{self.home}/register", data=sign_up, headers=SAME_ORIGIN)
        yield from self._both("confirm_registration_page", self._mailed("confirm"), visitor)
        yield from self._both("forgot_password_page", f"{self.home}/forgot", visitor, email=user.email)
        with self.app.app_context():
            actor = self.make.actor(self.organization)
            issue_reset_link(actor, user.id)
            create_invitation(actor, self.organization.slug, email="invited@example.com")
        yield from self._both("reset_password_page", self._mailed("reset"), visitor)
        yield from self._both("invitation_page", self._mailed("invite"), visitor, name="Invited")

    def _mailed(self, page: str) -> str:
        """Return the path of the latest link to the page that was sent by email."""
        self.deliver()
        links = [urlsplit(link).path for link in self.box.links()]
        return next(link for link in reversed(links) if f"/{page}/" in link)

    # Protocols

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
            grant_types=["client_credentials", GRANT_TYPE],
            token_exchange="delegation",
        )
        form = {
            "grant_type": GRANT_TYPE,
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

    def _press(self, page: TestResponse, button: str) -> dict[str, Any]:
        form = Page("", page.status_code, page.text).form_with(button)
        values: dict[str, Any] = {}
        for name, value in (*form.values, form.buttons[button]):
            if name:
                values.setdefault(name, []).append(value)
        return values

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
