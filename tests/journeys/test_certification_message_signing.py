"""The conditions of the certification plan FAPI 2.0 Message Signing: authorization requests are request objects.

It has the modules of the Security Profile and its own. The clients belong to the organization of
``test_certification``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.certification import Suite
from tests.journeys.fapi_party import FapiParty, ago, is_refused, of_profile
from tests.journeys.test_certification_fapi2 import SECURITY_PROFILE, Module, module
from tests.support.signer import compact, new_key

pytestmark = pytest.mark.live


def object_fails(**changes: Any) -> Module:
    """Return a module whose request object is rejected; functions of ``changes`` are called first."""

    def check(party: FapiParty) -> None:
        made = {name: value() if callable(value) else value for name, value in changes.items()}
        assert is_refused(party.push(jwt=made), "invalid_request_object")

    return check


# The modules that only this plan has.
MESSAGE_SIGNING: dict[str, Module] = {
    "ensure-request-object-without-exp-fails": object_fails(exp=None),
    "ensure-request-object-without-nbf-fails": object_fails(nbf=None),
    "ensure-expired-request-object-fails": object_fails(
        nbf=lambda: ago(600), iat=lambda: ago(600), exp=lambda: ago(300)
    ),
    "ensure-request-object-with-bad-aud-fails": object_fails(aud="https://other.example"),
    "ensure-request-object-with-exp-over-60-fails": object_fails(exp=lambda: ago(-70 * 60)),
    "ensure-request-object-with-nbf-over-60-fails": object_fails(nbf=lambda: ago(70 * 60)),
    "ensure-signed-request-object-with-RS256-fails": object_fails(header={"alg": "RS256"}),
    "ensure-request-object-with-invalid-signature-fails": object_fails(key=lambda: new_key("PS256")),
    "par-authorization-request-containing-request_uri": object_fails(request_uri="urn:other"),
}


@module("ensure-request-object-with-multiple-aud-succeeds", MESSAGE_SIGNING)
def several_audiences(party: FapiParty) -> None:
    party.came_back(party.pushed(jwt={"aud": ["https://other.example", party.suite.issuer]}))


@module("ensure-request-object-with-nbf-8-seconds-in-the-future-is-accepted", MESSAGE_SIGNING)
def object_of_the_future(party: FapiParty) -> None:
    party.came_back(party.pushed(jwt={"nbf": ago(-8)}))


@module("ensure-request-object-signature-algorithm-is-not-none", MESSAGE_SIGNING)
def unsigned_object(party: FapiParty) -> None:
    claims = party.request() | {"iss": party.client_id, "aud": party.suite.issuer}
    unsigned = compact({"alg": "none"}, claims | {"nbf": ago(0), "exp": ago(-60)}, None)
    assert is_refused(party.push(outside={"request": unsigned}), "invalid_request_object", "invalid_request")


@module("ensure-matching-key-in-authorization-request", MESSAGE_SIGNING)
def object_of_another(party: FapiParty) -> None:
    party.sent = party.request()
    signed = party.other.signer.request_object(party.sent, party.suite.issuer)
    form = {"client_id": party.client_id, "request": signed}
    answer = party.post("pushed_authorization_request_endpoint", form)
    assert is_refused(answer, "invalid_request_object")


@module("ensure-unsigned-request-at-par-endpoint-fails", MESSAGE_SIGNING)
def plain_request(party: FapiParty) -> None:
    answer = party.post("pushed_authorization_request_endpoint", party.request())
    assert is_refused(answer, "invalid_request")


@pytest.mark.parametrize("name", SECURITY_PROFILE | MESSAGE_SIGNING)
def test_message_signing_plan(suite: Suite, name: str) -> None:
    """FAPI 2.0 Message Signing: the same modules with request objects, and those about them."""
    (SECURITY_PROFILE | MESSAGE_SIGNING)[name](of_profile(suite, is_signing=True))
