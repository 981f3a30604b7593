"""Token revocation (RFC 7009); the JSON form of it is the management API's."""

from __future__ import annotations

from collections.abc import Mapping

from app.oauth import cors
from app.oauth.answer import Answer, answer, refusal_of
from app.oauth.authentication import authenticate
from app.oauth.call import Call
from app.oauth.wire import read_form
from app.operations.directory.lookups import AuthenticatedClient
from app.operations.grants import grants
from app.operations.tokens import revocation
from app.rules.errors import DomainError, InvalidInput
from app.rules.oauth_errors import InvalidGrant, OAuthError


def revoke(call: Call) -> Answer:
    """200 once the token is dead, and for every string that was none (RFC 7009 section 2.2)."""
    authenticated = None
    try:
        authenticated = _revoke(call, read_form(call))
        given = answer({})
    except InvalidInput as error:
        given = refusal_of(InvalidGrant(error.description).with_cause("token_not_own"), call)
    except DomainError as error:
        given = refusal_of(error, call)
    return cors.allow_own_origins(given, call, authenticated)


def _revoke(call: Call, sent: Mapping[str, str]) -> AuthenticatedClient:
    authenticated = authenticate(call, sent)
    if "token" not in sent:
        raise OAuthError("The parameter token is missing.").with_cause("parameter_missing", expected="token")
    actor = grants.client_actor(authenticated.client, call.address, call.request_id)
    # The hint only says where to look first, and the token says that itself (RV-3).
    revocation.revoke_token(actor, sent["token"])
    return authenticated
