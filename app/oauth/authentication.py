"""Client authentication as every endpoint of the wire asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from app.oauth.call import Call
from app.oauth.wire import read_client
from app.operations.clients import authenticated_client_cache, client_authentication
from app.operations.directory.lookups import AuthenticatedClient

# Where one of them stands beside the header, the header alone does not decide.
_IN_BODY = frozenset({"client_id", "client_secret", "client_assertion", "client_assertion_type"})


def authenticate(call: Call, sent: Mapping[str, str]) -> AuthenticatedClient:
    """The client behind the request, known to the organization of the path. Raises InvalidClient."""
    header = call.authorization
    # Programs send the same header all day: what it proved a moment ago it proves still, while nothing has changed.
    if header is not None and _IN_BODY.isdisjoint(sent):
        known = authenticated_client_cache.recall(header, call.organization_id)
        if known is not None:
            call.authenticated = known
            return known
    presented = call.presented = read_client(call, sent)
    proven = client_authentication.authenticate_client(
        presented, organization_id=call.organization_id, address=call.address
    )
    call.authenticated = proven
    if presented.assertion is not None:
        call.has_claimed_assertion = True
    elif header is not None and _IN_BODY.isdisjoint(sent):
        authenticated_client_cache.remember(header, proven)
    return proven
