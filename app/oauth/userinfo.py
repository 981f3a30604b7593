"""Userinfo (OpenID Connect Core section 5.3)."""

from __future__ import annotations

from app.oauth import cors
from app.oauth.answer import REALM, Answer, answer, refusal_of, signed_answer
from app.oauth.call import Call
from app.oauth.dpop import offer_nonce
from app.oauth.wire import FORM, read_form, require_secure
from app.operations.clients.dpop_proofs import ProofRefused
from app.operations.directory.lookups import AuthenticatedClient
from app.operations.tokens import id_tokens as operation
from app.rules.errors import DomainError, Forbidden, Unauthenticated
from app.rules.oauth_errors import OAuthError
from app.rules.tokens.protected_resources import PresentedToken, is_by_dpop
from app.web.challenges import challenges


def userinfo(call: Call) -> Answer:
    """The claims that the token's scopes release; the token in the header, or in a form body."""
    client = None
    try:
        found = operation.claims_of(_presented(call), organization_id=call.organization_id)
        given = (
            answer(found.claims) if found.signed is None else signed_answer(found.signed, "application/jwt")
        )
        client = found.client
    except (Unauthenticated, Forbidden) as error:
        given = refusal_of(error, call)
        # Without a token there is no error code to tell (RFC 6750 section 3.1).
        why = {} if error.description == _MISSING else {"error": error.code}
        for challenge in challenges(f'realm="{REALM}"', why, by_dpop=is_by_dpop(call.authorization)):
            given.headers.append(("WWW-Authenticate", challenge))
        if isinstance(error, ProofRefused):
            # The client's pages must read the nonce to try again.
            client = AuthenticatedClient(error.client, None)
    except DomainError as error:
        given = refusal_of(error, call)
    return cors.allow_own_origins(offer_nonce(given, call), call, client)


_MISSING = "An access token is needed."


def _presented(call: Call) -> PresentedToken:
    require_secure(call)
    header = call.authorization
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() not in {"bearer", "dpop"} or not token.strip():
            raise Unauthenticated(_MISSING)
        if call.method == "POST" and call.content_type == FORM and "access_token" in read_form(call):
            raise OAuthError("The token was sent twice.")
        return PresentedToken(
            token.strip(), is_by_dpop(header), proof=call.proof, method=call.method, url=call.url
        )
    if call.method == "POST" and call.content_type == FORM:
        token = read_form(call).get("access_token", "")
        if token:
            return PresentedToken(token)
    raise Unauthenticated(_MISSING)
