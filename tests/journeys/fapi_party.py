"""A client of FAPI 2.0 that pushes its requests, plain or signed, and sends DPoP proofs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import requests
from sqlalchemy import update

from app.extensions import db
from app.models.grant import AuthorizationCode
from app.models.token import PushedRequest
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.journeys.certification import (
    REDIRECT_URI,
    SCOPES,
    VERIFIER,
    Callback,
    RelyingParty,
    Suite,
)
from tests.support.dpop import Prover
from tests.support.form_browser import Page
from tests.support.signer import Signer

# The members of the header and payload of a JWT that a module changes; None removes one.
Changes = Mapping[str, Any]


@dataclass(slots=True)
class FapiParty(RelyingParty):
    """A client of the profile; ``is_signing`` if it sends request objects. ``nonce`` is the provider's latest."""

    prover: Prover = field(default_factory=Prover)
    is_signing: bool = False
    nonce: str | None = None

    @property
    def other(self) -> FapiParty:
        """The second client of the plan, in the same browser."""
        party = of_profile(self.suite, is_signing=self.is_signing, number=2)
        party.browser = self.browser
        return party

    def proof(self, method: str, url: str, **changes: Any) -> dict[str, str]:
        """Return the header with a DPoP proof."""
        return self.prover.headers(method, url, nonce=self.nonce, **changes)

    def post(
        self, endpoint: str, form: Mapping[str, str], *, proof: Changes | None = None, **assertion: Any
    ) -> requests.Response:
        """Authenticate and post the form, with a DPoP proof unless ``proof`` is None, and again with a nonce."""
        url = self.suite.metadata[endpoint]
        for _ in range(2):
            headers = {} if proof is None else self.proof("POST", url, **proof)
            _, own = self.credentials(**assertion)
            answer = self.suite.http.post(url, data={**form, **own}, headers=headers, timeout=30)
            self.nonce = answer.headers.get("DPoP-Nonce", self.nonce)
            if answer.status_code != 400 or answer.json()["error"] != "use_dpop_nonce":
                break
        return answer

    def push(
        self,
        parameters: dict[str, str] | None = None,
        *,
        proof: Changes | None = None,
        jwt: Changes | None = None,
        outside: Mapping[str, str] | None = None,
        **assertion: Any,
    ) -> requests.Response:
        """Push the request; ``jwt`` are changes of the request object, ``outside`` are further form parameters."""
        self.sent = self.request() if parameters is None else parameters
        form = self.sent
        if self.is_signing:
            signed = self.signer.request_object(self.sent, self.suite.issuer, **(jwt or {}))
            form = {"client_id": self.client_id, "request": signed}
        endpoint = "pushed_authorization_request_endpoint"
        return self.post(endpoint, form | dict(outside or {}), proof=proof, **assertion)

    def pushed(self, parameters: dict[str, str] | None = None, **how: Any) -> str:
        """Return the request_uri of a request that is accepted."""
        answer = self.push(parameters, **how)
        assert (answer.status_code, answer.headers["Content-Type"]) == (201, "application/json"), answer.text
        document = answer.json()
        assert document["expires_in"] > 0 and len(document["request_uri"]) > 60
        return str(document["request_uri"])

    def go(self, request_uri: str, **outside: str) -> Callback | Page:
        """Send the user to the authorization endpoint with the pushed request."""
        own = {"client_id": self.client_id, "request_uri": request_uri}
        return self.open(self.suite.metadata["authorization_endpoint"], own | outside)

    def came_back(self, request_uri: str, **outside: str) -> str:
        """Return the code of a successful authorization response."""
        callback = self.go(request_uri, **outside)
        assert isinstance(callback, Callback), (callback.url, callback.text[:3000])
        expected = {"iss": self.suite.issuer}
        if "state" in self.sent:
            expected["state"] = self.sent["state"]
        assert callback.parameters == expected | {"code": callback.parameters["code"]}
        return callback.parameters["code"]

    def exchange(self, code: str, *, proof: Changes | None = None, **changes: Any) -> requests.Response:
        """Redeem the code with a DPoP proof."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI}
        form |= {"code_verifier": VERIFIER} | changes.pop("form", {})
        form = {name: value for name, value in form.items() if value is not None}
        return self.post("token_endpoint", form, proof=proof or {}, **changes)

    def flow(
        self, parameters: dict[str, str] | None = None, *, proof: Changes | None = None
    ) -> dict[str, Any]:
        """Run the whole flow and return the tokens, which are checked and used at userinfo."""
        tokens = self.tokens_of(self.exchange(self.came_back(self.pushed(parameters)), proof=proof))
        assert tokens["token_type"] == "DPoP"
        claims = self.verified(tokens["id_token"], tokens["access_token"])
        answer = self.resource(tokens)
        assert (answer.status_code, answer.json()["sub"]) == (200, claims["sub"]) and answer.headers["Date"]
        return tokens | {"claims": claims}

    def resource(self, tokens: dict[str, Any], **changes: Any) -> requests.Response:
        """Call userinfo with a DPoP proof; ``changes`` are those of the proof, ``sends`` of the headers."""
        url, sends = self.suite.metadata["userinfo_endpoint"], changes.pop("sends", {})
        for _ in range(2):
            headers = self.proof("GET", url, access_token=tokens["access_token"], **changes) | sends
            sent = {name: value for name, value in headers.items() if value is not None}
            answer = self.suite.http.get(url, headers=sent, timeout=30)
            self.nonce = answer.headers.get("DPoP-Nonce", self.nonce)
            if "use_dpop_nonce" not in answer.headers.get("WWW-Authenticate", ""):
                break
        return answer


def of_profile(suite: Suite, *, is_signing: bool, number: int = 1) -> FapiParty:
    """Return one of the two clients of a plan."""
    signer = Signer("PS256" if number == 1 else "ES256", key_id=f"key {number}")
    party = suite.configure(
        name=f"Bank {number}",
        security_profile="fapi2",
        id_token_claims="minimal",
        require_signed_request_object=is_signing,
        token_endpoint_auth_method="private_key_jwt",
        jwks=signer.jwks,
        scopes=SCOPES,
    )
    return FapiParty(
        suite, party.client_id, None, "private_key_jwt", signer=signer, is_signing=is_signing, pkce=True
    )


def is_refused(answer: requests.Response, *errors: str) -> bool:
    """Return whether the answer is one of the errors (RFC 6749 section 5.2, RFC 9126 section 2.3)."""
    assert answer.headers["Content-Type"] == "application/json", answer.text
    error = answer.json()["error"]
    statuses = {400, 401} if error == "invalid_client" else {400}
    assert answer.status_code in statuses and error in errors, answer.text
    return True


def ago(seconds: float) -> int:
    """Return the Unix time so many seconds ago; a negative number is in the future."""
    return int(time.time() - seconds)


def expire(party: FapiParty, model: type[AuthorizationCode] | type[PushedRequest]) -> None:
    """Let the codes or pushed requests of the organization have expired, by the server's clock too."""

    @transaction
    def act() -> None:
        here = model.organization_id == party.suite.organization.id
        past = clock.now() - timedelta(minutes=1)
        db.session.execute(update(model).where(here).values(expires_at=past))

    with party.suite.server.app.app_context():
        act()


def is_error_page(answer: Callback | Page) -> None:
    """Check that the provider shows an error page."""
    assert isinstance(answer, Page) and answer.left is None and answer.status == 400
    assert "invalid_request_uri" in answer.text
