"""A test suite like the OpenID certification's: one organization, relying parties, and checks of every answer.

The conditions are those of the public test plans, in our own words. Relying parties know the discovery document, and a
browser signs the user in. Nothing else is prepared, so whatever passes here needs no help from an operator.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from joserfc import jwt
from joserfc.jwk import KeySet
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from app.operations.users.user_changes import update_user
from app.rules.authorization.authorization_request import challenge_of
from app.rules.tokens.claims import left_half_hash
from tests.factories import Factory, MadeUser, basic_header
from tests.journeys.node_clients import Site
from tests.support.form_browser import FormBrowser, Page
from tests.support.servers import LiveServer
from tests.support.signer import Signer

REDIRECT_URI = "https://suite.example/test/callback"
VERIFIER = "one-verifier-for-every-request-since-nobody-attacks-here"
POST_LOGOUT_URI = "https://suite.example/test/post_logout_redirect"
SETTINGS = {
    "oauth": {
        "pkce": "public_clients",
        "dynamic_registration": {"mode": "open", "max_per_hour": 10_000},
        "consent": {"remember_self_registered": True},
    }
}
PROFILE = {
    "given_name": "Ada",
    "family_name": "Lovelace",
    "middle_name": "King",
    "nickname": "ada",
    "preferred_username": "ada",
    "profile": "https://ada.example/",
    "picture": "https://ada.example/ada.png",
    "website": "https://ada.example/blog",
    "gender": "female",
    "birthdate": "1985-12-10",
    "zoneinfo": "Europe/London",
    "locale": "en-GB",
    "phone_number": "+44 20 7946 0000",
    "address": {"locality": "London", "country": "United Kingdom"},
}
SCOPES = ["openid", "profile", "email", "address", "phone", "offline_access"]
# The buttons that continue, in the order of the pages.
_BUTTONS = ("verify-submit", "consent-allow", "logout-confirm", "device-continue", "device-find")
_MAX_PAGES = 6
# RFC 6749 appendix A: what error codes and descriptions may contain.
_ERROR_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - set('"\\')


def patient(session: requests.Session) -> requests.Session:
    """Return the session, which repeats a request that an overloaded server answered with 503 and Retry-After."""
    retry = Retry(total=10, status_forcelist=[503], allowed_methods=None, backoff_factor=0.2)
    session.mount("https://", HTTPAdapter(max_retries=retry))
    return session


def part_of(token: str, index: int) -> dict[str, Any]:
    """Return the header (0) or the unverified claims (1) of a JWT."""
    part = token.split(".")[index]
    return dict(json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))))


@dataclass(frozen=True, slots=True)
class Callback:
    """An authorization response that reached the redirect URI."""

    method: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class SignIn:
    """A completed sign-in: the authorization code, the token response and the verified claims of the ID token."""

    code: str
    tokens: dict[str, Any]
    claims: dict[str, Any]


class Suite:
    """The organization under test, its user and its discovery document."""

    def __init__(self, server: LiveServer, site: Site, settings: dict[str, Any]) -> None:
        self.server, self.site, self.make = server, site, Factory(server.app)
        self.http = patient(requests.Session())
        # Environment variables for certificates would take precedence.
        self.http.trust_env = False
        self.http.verify = str(site.server.ca_path)
        self.organization = self.make.organization(settings=settings)
        self.user = self._complete_user()
        self.issuer = self.organization.issuer
        url = f"{self.issuer}/.well-known/openid-configuration"
        self.metadata: dict[str, Any] = self.http.get(url, timeout=30).json()
        self._configured: dict[str, RelyingParty] = {}

    def _complete_user(self) -> MadeUser:
        user = self.make.user(self.organization)
        with self.server.app.app_context():
            update_user(self.make.system(self.organization), user.public_id, {"profile": PROFILE})
        return user

    def published_keys(self) -> list[dict[str, Any]]:
        """Return the provider's keys."""
        return list(self.http.get(self.metadata["jwks_uri"], timeout=30).json()["keys"])

    def opened(self, token: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and claims of a JWT that the provider signed, with the key of its kid and algorithm."""
        header, keys = part_of(token, 0), self.published_keys()
        assert [key["alg"] for key in keys if key["kid"] == header["kid"]] == [header["alg"]]
        opened = jwt.decode(token, KeySet.import_key_set({"keys": keys}), algorithms=[header["alg"]])
        return header, opened.claims

    def browser(self) -> FormBrowser:
        """Return a browser without cookies."""
        browser = FormBrowser(self.server.url, ca_path=self.site.server.ca_path)
        patient(browser.session)
        return browser

    def registration(self, **changes: Any) -> requests.Response:
        """Send the registration request of the plans with the changes; None removes a member."""
        good = {
            "client_name": "Conformance test",
            "redirect_uris": [REDIRECT_URI],
            "grant_types": ["authorization_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_basic",
            "jwks": Signer("RS256").jwks,
            "contacts": ["certification@suite.example"],
        }
        sent = {name: value for name, value in (good | changes).items() if value is not None}
        return self.http.post(self.metadata["registration_endpoint"], json=sent, timeout=30)

    def register(self, **metadata: Any) -> RelyingParty:
        """Return a relying party that registered itself."""
        answer = self.registration(**metadata)
        assert answer.status_code == 201 and answer.headers["Content-Type"] == "application/json", answer.text
        told = answer.json()
        assert "client_secret" not in told or told["client_secret_expires_at"] == 0
        # Both or neither (RFC 7592 section 3).
        assert {"registration_access_token", "registration_client_uri"} <= set(told)
        return RelyingParty(
            self, told["client_id"], told.get("client_secret"), told["token_endpoint_auth_method"], told
        )

    def configure(self, **fields: Any) -> RelyingParty:
        """Return a relying party that an administrator registered: the same one for the same fields."""
        key = json.dumps(fields, sort_keys=True)
        if key not in self._configured:
            good = {
                "redirect_uris": [REDIRECT_URI],
                "scopes": SCOPES,
                "token_endpoint_auth_method": "client_secret_basic",
            }
            client = self.make.client(self.organization, **(good | fields))
            secret, method = (
                client.registered.secret,
                client.registered.client.token_endpoint_auth_method,
            )
            self._configured[key] = RelyingParty(self, client.client_id, secret, method)
        return self._configured[key].fresh()


@dataclass(slots=True)
class RelyingParty:
    """A relying party with its user's browser. ``sent`` is its latest authorization request."""

    suite: Suite
    client_id: str
    secret: str | None
    method: str
    registered: dict[str, Any] = field(default_factory=dict)
    signer: Signer = field(default_factory=lambda: Signer("RS256"))
    response_mode: str | None = None
    # Whether it uses PKCE, which the plans of OpenID Connect do not.
    pkce: bool = False
    # Returns the code of the user's authenticator app.
    second_factor: Callable[[], str] | None = None
    browser: FormBrowser = field(init=False)
    sent: dict[str, str] = field(default_factory=dict)
    # The buttons that the user pressed since the latest authorization request.
    pressed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.browser = self.suite.browser()

    def fresh(self) -> RelyingParty:
        """Return the relying party in a browser without cookies."""
        return RelyingParty(
            self.suite, self.client_id, self.secret, self.method, self.registered, self.signer
        )

    def request(self, **changes: str | None) -> dict[str, str]:
        """Return an authorization request as the plans send it; None removes a parameter."""
        pkce = {"code_challenge": challenge_of(VERIFIER), "code_challenge_method": "S256"}
        good: dict[str, str | None] = {
            **(pkce if self.pkce else {}),
            "client_id": self.client_id,
            "redirect_uri": REDIRECT_URI,
            "scope": "openid",
            "state": secrets.token_urlsafe(96),
            "nonce": secrets.token_urlsafe(16),
            "response_type": "code",
            "response_mode": self.response_mode,
        }
        return {name: value for name, value in (good | changes).items() if value is not None}

    def visit(self, *, by: str = "GET", **changes: str | None) -> Callback | Page:
        """Send the user to the authorization endpoint: return the response, or the page without a way on."""
        self.sent = self.request(**changes)
        return self.open(self.suite.metadata["authorization_endpoint"], self.sent, by=by)

    def open(self, url: str, parameters: dict[str, str], *, by: str = "GET") -> Callback | Page:
        """Send the user to a page of the provider and let them sign in and allow what is asked."""
        self.pressed = []
        url = requests.Request("GET", url, params=parameters).prepare().url or url
        page = self.browser.visit(url) if by == "GET" else self._post(url)
        for _ in range(_MAX_PAGES):
            if page.left is not None:
                query = parse_qs(urlsplit(page.left).query, keep_blank_values=True)
                assert all(len(values) == 1 for values in query.values()), page.left
                assert not urlsplit(page.left).fragment
                self._is_at_the_redirect_uri(page.left)
                return Callback("GET", {name: values[0] for name, values in query.items()})
            if page.has("authorization-continue"):
                # The script of the page submits the form, in old browsers too.
                assert re.search(r'<script defer src="[^"]*form_post.js[^"]*"></script>', page.text)
                form = page.form_with("authorization-continue")
                self._is_at_the_redirect_uri(form.action)
                return Callback(form.method, dict(form.values))
            button = next((name for name in ("login-submit", *_BUTTONS) if page.has(name)), None)
            if button is None:
                return page
            self.pressed.append(button)
            page = self._press(page, button)
        raise AssertionError(f"there is no end to the pages: {page.url}")

    def _post(self, url: str) -> Page:
        """Send the request as another site's form would (OpenID Connect Core section 3.1.2.1)."""
        address, _, query = url.partition("?")
        answer = self.browser.session.post(
            address,
            data=query,
            headers={"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
            allow_redirects=False,
            timeout=30,
        )
        assert answer.is_redirect, answer.text[:2000]
        return self.browser.visit(answer.headers["Location"])

    def _press(self, page: Page, button: str) -> Page:
        user = self.suite.user
        if button == "login-submit":
            return self.browser.sign_in(page, user.email, user.password)
        if button == "verify-submit" and self.second_factor is not None:
            return self.browser.press(page, button, code=self.second_factor())
        return self.browser.press(page, button)

    def _is_at_the_redirect_uri(self, url: str) -> None:
        expected = self.sent.get("redirect_uri", POST_LOGOUT_URI)
        assert url.startswith((expected, POST_LOGOUT_URI)), url

    def answered(self, *, by: str = "GET", **changes: str | None) -> dict[str, str]:
        """Send the user to the authorization endpoint and return the checked response."""
        callback = self.visit(by=by, **changes)
        assert isinstance(callback, Callback), (callback.url, callback.status, callback.text[:3000])
        assert callback.method == ("POST" if self.response_mode == "form_post" else "GET")
        answer = callback.parameters
        assert answer.get("state") == self.sent.get("state")
        assert answer["iss"] == self.suite.issuer
        return answer

    def code(self, *, by: str = "GET", **changes: str | None) -> str:
        """Return the code of a successful authorization response."""
        answer = self.answered(by=by, **changes)
        assert set(answer) - {"state"} == {"code", "iss"}, answer
        assert len(answer["code"]) >= 22, "at least 128 bits"
        return answer["code"]

    def refused(self, *errors: str, **changes: str | None) -> None:
        """Check that the client is told one of the errors."""
        answer = self.answered(**changes)
        assert set(answer) - {"state"} <= {"error", "error_description", "error_uri", "iss"}, answer
        assert answer["error"] in errors, answer
        assert set(answer.get("error_description", "")) <= _ERROR_CHARACTERS

    def shown_error(self, **changes: str | None) -> str:
        """Check that an error page is shown and the client gets nothing; return its text."""
        page = self.visit(**changes)
        assert isinstance(page, Page) and page.left is None and page.status == 400, page
        assert page.has("error-code"), page.text[:3000]
        return page.text

    def credentials(self, **changes: Any) -> tuple[dict[str, str], dict[str, str]]:
        """Return headers and form fields that authenticate the client."""
        if self.method == "client_secret_basic":
            return basic_header(self.client_id, self.secret or ""), {}
        if self.method == "client_secret_post":
            return {}, {"client_id": self.client_id, "client_secret": self.secret or ""}
        if self.method == "private_key_jwt":
            audience = changes.pop("audience", self.suite.issuer)
            return {}, self.signer.fields(self.client_id, audience, **changes)
        return {}, {"client_id": self.client_id}

    def token_request(self, **form: str) -> requests.Response:
        """Send a token request of the client."""
        headers, own = self.credentials()
        url = self.suite.metadata["token_endpoint"]
        return self.suite.http.post(url, data=form | own, headers=headers, timeout=30)

    def redeem(self, code: str, **changes: str) -> requests.Response:
        """Redeem the code and return the response."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.sent["redirect_uri"]}
        pkce = {"code_verifier": VERIFIER} if self.pkce else {}
        return self.token_request(**(form | pkce | changes))

    def tokens_of(self, answer: requests.Response) -> dict[str, Any]:
        """Return the tokens of a successful token response, which is checked."""
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
        assert "no-store" in answer.headers["Cache-Control"]
        tokens: dict[str, Any] = answer.json()
        assert tokens["token_type"].lower() in {"bearer", "dpop"}
        assert isinstance(tokens["expires_in"], int) and tokens["expires_in"] > 0
        assert min(len(tokens["access_token"]), len(tokens.get("refresh_token", "x" * 22))) >= 22
        return tokens

    def verified(self, id_token: str, access_token: str, *, is_refreshed: bool = False) -> dict[str, Any]:
        """Return the claims of the ID token, which is checked (OpenID Connect Core sections 3.1.3.7 and 12.2)."""
        header, claims = self.suite.opened(id_token)
        assert claims["iss"] == self.suite.issuer and claims["sub"]
        assert claims["aud"] == self.client_id and "azp" not in claims
        assert claims["iat"] - 300 < time.time() < claims["exp"]
        assert claims.get("nonce") == (None if is_refreshed else self.sent.get("nonce"))
        assert claims["at_hash"] == left_half_hash(access_token, header["alg"])
        return claims

    def sign_in(self, *, by: str = "GET", **changes: str | None) -> SignIn:
        """Sign the user in and check everything that the provider answers, with userinfo."""
        code = self.code(by=by, **changes)
        tokens = self.tokens_of(self.redeem(code))
        claims = self.verified(tokens["id_token"], tokens["access_token"])
        assert self.userinfo(tokens)["sub"] == claims["sub"]
        return SignIn(code, tokens, claims)

    def call(self, tokens: dict[str, Any], method: str = "GET", **how: Any) -> requests.Response:
        """Call userinfo, by default with the token in the header."""
        sent = how or {"headers": {"Authorization": f"Bearer {tokens['access_token']}"}}
        return self.suite.http.request(method, self.suite.metadata["userinfo_endpoint"], timeout=30, **sent)

    def userinfo(self, tokens: dict[str, Any], method: str = "GET", **how: Any) -> dict[str, Any]:
        """Return the claims of userinfo."""
        answer = self.call(tokens, method, **how)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
        claims: dict[str, Any] = answer.json()
        assert all(value not in (None, "") for value in claims.values())
        return claims


def is_invalid_grant(answer: requests.Response) -> bool:
    """Return whether the token endpoint answered invalid_grant (RFC 6749 section 5.2)."""
    assert answer.headers["Content-Type"] == "application/json"
    document = answer.json()
    assert set(document.get("error_description", "")) <= _ERROR_CHARACTERS
    return (answer.status_code, document["error"]) == (400, "invalid_grant")
