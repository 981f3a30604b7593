"""A valid request for each route and method: signed in, authenticated, and with what it needs in place.

Making them changes the database, sending them is left to the tests. A form is read in one browser and sent by another
client with its cookies, so CSRF protection has to be off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from flask.testing import FlaskClient

from app.rules.identifiers import ACCESS_TOKEN, new_token
from tests.factories import bearer_header
from tests.support.account_requests import AccountRequests
from tests.support.matrix import BODIES
from tests.support.pictures import PNG
from tests.support.protocol_requests import ProtocolRequests
from tests.support.request_world import SAME_ORIGIN, ValidRequest, cookies_of, form_of
from tests.support.scim_requests import ScimRequests
from tests.support.world_rows import ISSUER

_VARIABLE = re.compile(r"<(?:[^:>]+:)?([^>]+)>")
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
    "portal.delete_api": {"typed": "API"},
    "portal.scope_page": {"title": "Read plain things"},
    "portal.new_role": {
        "key": "support",
        "name": "Support",
        "permissions": ["users:read"],
        "more_permissions": "",
    },
    "portal.role": {"remove": "1"},
    "portal.organization_delete": {"typed": "acme-corner"},
    "portal.organization_page": {"resume": "1"},
    "portal.delete": {"typed": "acme-corner"},
    "portal.general": {"name": "Renamed"},
    "portal.rotate_keys": {"algorithm": "EdDSA"},
    "portal.setting_topic": {"branding.theme": "dark"},
    "portal.webhook_new": {"url": "https://hooks.example/new", "groups": "user.*", "event_types": ""},
    "portal.webhook_edit": {"url": "https://hooks.example/changed", "groups": "user.*", "event_types": ""},
    "portal.identity_provider_new": {
        "name": "New",
        "slug": "new",
        "issuer": ISSUER,
        "client_id": "new",
        "client_secret": "new",
    },
    "portal.identity_provider_edit": {"name": "Renamed"},
    "portal.instance_limit": {"max": "3600"},
    "portal.group_page": {"email": "picker@example.com"},
    "portal.client_owner": {"email": "owner@example.com"},
    "portal.api_owner": {"email": "owner@example.com"},
    "portal.user_transfer": {"email": "owner@example.com"},
    "portal.assign_client_role": {"role": "editor", "email": "picker@example.com"},
    "portal.attribute_new": {**ATTRIBUTE, "name": "Cost center", "key": "cost_center"},
    "portal.attribute_page": {**ATTRIBUTE, "name": "Division"},
}
FILES = {
    "portal.logo_upload": ("logo", "logo.png", PNG),
    "portal.import_upload": ("file", "u.csv", b"email\na@b.example\n"),
}


class Requests(AccountRequests, ProtocolRequests, ScimRequests):
    """Makes the requests in one organization that has everything, ``acme-corner``."""

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
            "deleteIdentityProvider": {"providerId": self.spare_provider},
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
            "provider_id": ids["providerId"],
            "identity_id": ids["identityId"],
            "provisioning_token_id": ids["provisioningTokenId"],
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
            "portal.identity_provider_delete": {"provider_id": self.spare_provider},
            "portal.fix_request": {"failed_request_id": self.refused_redirect},
        }
        if endpoint.endswith("rotation"):
            return {"client_id": self.rotating.client_id}
        return own.get(endpoint, {})

    def _typed(self, endpoint: str) -> dict[str, str]:
        """Return the values that name things of this organization."""
        if endpoint == "portal.delete_user_page":
            return {"typed": self.secured.email}
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
