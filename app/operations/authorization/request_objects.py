"""Request objects that count (RFC 9101): signed by a key of the client that sends them."""

from __future__ import annotations

from app.operations import clock
from app.operations.client_proof import client_keys
from app.operations.client_proof.client_keys import KeysUnavailable
from app.operations.directory import ClientView
from app.rules.authorization.request_object import InvalidRequestObject, judge, read_request_object
from app.rules.oauth_errors import AuthorizationRefusal
from app.rules.registration.demands import requires


def parameters_of(client: ClientView, request_object: str) -> dict[str, str]:
    """The parameters in the object, and nothing from beside it (RFC 9101 section 6.3).

    Raises InvalidRequestObject, and AuthorizationRefusal for an encrypted one, an unsigned one, and while the
    client's keys cannot be read. Called outside of a unit: it may fetch them.
    """
    demands = requires(client.document, client.organization.settings)
    chosen = client.document.get("request_object_signing_alg")
    jwt = read_request_object(
        request_object, must_be_signed=demands.request_objects or demands.fapi2 or chosen is not None
    )
    try:
        is_signed = client_keys.has_signed(client, jwt)
    except KeysUnavailable as unavailable:
        raise AuthorizationRefusal("temporarily_unavailable", unavailable.description).because(
            "client_keys_unavailable"
        ) from None
    if not is_signed:
        raise InvalidRequestObject("No key of the client verifies the request object.")
    return judge(
        jwt,
        client_id=client.client_id,
        issuer=client.organization.issuer,
        algorithms=tuple(name for name in demands.algorithms if chosen in {None, name}),
        is_bounded=demands.fapi2,
        now=clock.now(),
    )
