"""The HTML pages that the matrices visit: which are public and why, and the URL of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.rules.identifiers import new_id, public_id
from tests.factories import Factory
from tests.support.request_world import cookies_of
from tests.support.world import Corner, build

# Public pages, and why they are public.
PUBLIC = {
    "static": "style sheets, scripts and icons",
    "health.alive": "a probe",
    "health.ready": "a probe",
    "security_txt.show": "tells researchers whom to contact",
    "portal.setup_form": "its token is the proof",
    "portal.setup_submit": "its token is the proof",
    "portal.setup_done": "shows a secret only to the browser that set it up",
    "portal.theme": "a colour",
    "logos.show": "a picture that stands on public pages",
    "logos.organization": "a picture that stands on public pages",
    "portal.choose_organization": "lists the sign-ins of this browser alone",
    "account.start_page": "leads on",
    "account.find_password_page": "leads on",
    "account.choose_organization": "asks for an organization's name",
    "account.sign_in_page": "where one signs in",
    "account.verify_page": "the sign-in that waits is bound to the browser",
    "account.enrol_page": "the sign-in that waits is bound to the browser",
    "account.begin_provider_sign_in_action": "where one signs in",
    "account.provider_callback": "the answer is bound to the browser",
    "account.passkey_options": "returns the same to every caller and names no account",
    "account.sign_in_by_passkey": "where one signs in",
    "account.verify_with_passkey": "the sign-in that waits is bound to the browser",
    "account.enrolled_page": "shows codes only to the browser that just made them",
    "account.enrol_passkey": "the sign-in that waits is bound to the browser",
    "account.invitation_page": "its token is the proof",
    "account.confirm_registration_page": "its token is the proof",
    "account.reset_password_page": "its token is the proof",
    "account.forgot_password_page": "says the same to everybody",
    "account.sign_up_page": "where one makes an account",
    "account.sign_out_page": "is empty without a session",
    "account.sign_out": "ends this browser's own sign-in",
    "device.choose": "asks for an organization's name",
    "interaction.resume": "the stored request is bound to the browser",
    "interaction.select_account": "the stored request is bound to the browser",
    "interaction.decide": "the stored request is bound to the browser",
    "interaction.confirm_logout": "ends this browser's own sign-in",
}
# Endpoints without a management token: they have other authentication or are public.
WIRE = re.compile(
    r"(oauth|organization_oauth|provider_logout|discovery|scim)\..+|(api|api_v1)\.get_openapi|api_v1_only\.revoke_token"
)
# Covered by the matrix of the management API.
MANAGEMENT = re.compile(r"(api|api_v1)\..+")
_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
SLUG = "acme-corner"


class Matrix:
    """The HTML pages and the corner of the world that they show."""

    def __init__(self, app: Flask, make: Factory) -> None:
        self.app, self.make = app, make
        self.acme, self.globex = build(app, make)
        self._tokens: dict[str, str] = {}

    def pages(self) -> Iterator[tuple[str, str, str]]:
        """Return (endpoint, method, path pattern) of every page that is not public."""
        for rule in self.app.url_map.iter_rules():
            if (
                rule.endpoint in PUBLIC
                or WIRE.fullmatch(rule.endpoint)
                or MANAGEMENT.fullmatch(rule.endpoint)
            ):
                continue
            for method in sorted((rule.methods or set()) & {"GET", "POST"}):
                yield rule.endpoint, method, rule.rule

    def send(self, http: FlaskClient, method: str, path: str) -> TestResponse:
        """Request the page, or submit its form with a valid CSRF token."""
        if method == "GET":
            return http.get(path)
        fields = {
            "csrf_token": self._token(http),
            "name": "Taken over",
            "email": "mallory@example.com",
            "role": "admin",
        }
        return http.post(path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})

    def _token(self, http: FlaskClient) -> str:
        """Return the CSRF token of the browser, which is read from a page again when its cookies have changed."""
        cookies = cookies_of(http)
        if cookies not in self._tokens:
            found = _TOKEN.search(http.get(f"/organizations/{SLUG}/login?reauthenticate=1").text)
            assert found is not None
            cookies = cookies_of(http)
            self._tokens[cookies] = found[1]
        return self._tokens[cookies]


def path_of(pattern: str, corner: Corner, slug: str = SLUG) -> str:
    """Return the page's path for the corner's ids."""
    values = {
        "organization": slug,
        "slug": corner.ids["id"],
        "client_id": corner.ids["clientId"],
        "credential_id": corner.ids["credentialId"],
        "admin_id": corner.ids["adminId"],
        "api_id": corner.ids["resourceId"],
        "event_id": corner.ids["auditEventId"],
        "grant_id": corner.ids["grantId"],
        "access_token_id": corner.ids["tokenId"],
        "revocation_id": corner.ids["revocationId"],
        "file_format": "csv",
        "failed_request_id": corner.ids["failedRequestId"],
        "invitation_id": corner.ids["invitationId"],
        "consent_id": public_id("con", new_id()),
        "session_id": public_id("ses", new_id()),
        "passkey_id": public_id("pky", new_id()),
        "provider": "example",
        "browser_id": public_id("kbr", new_id()),
        "access_id": corner.ids["clientAccessId"],
        "request_id": corner.ids["clientRequestId"],
        "registration_id": corner.ids["registrationId"],
        "token_id": corner.ids["registrationTokenId"],
        "webhook_id": corner.ids["webhookId"],
        "delivery_id": corner.ids["deliveryId"],
        "provider_id": corner.ids["providerId"],
        "identity_id": corner.ids["identityId"],
        "provisioning_token_id": corner.ids["provisioningTokenId"],
        "user_id": corner.ids["userId"],
        "assignment_id": corner.ids["assignmentId"],
        "group_id": corner.ids["groupId"],
        "import_id": corner.ids["importId"],
        "run_id": public_id("plr", new_id()),
        "role": "developer",
        "scope_name": corner.ids["scopeName"],
        "setting": "oauth.access_token.ttl_seconds",
        "topic": "sessions",
        "key": "department",
        "algorithm": "EdDSA",
        "token": "x",
        "guide": "first-client",
        "color": "2563eb",
        "operation_id": "getMe",
    }
    return re.sub(r"<(?:[^:>]+:)?([^>]+)>", lambda match: quote(values[match[1]]), pattern)
