"""DPoP on the wire (RFC 9449): the proof of a request, and the nonce for the next one."""

from __future__ import annotations

from dataclasses import replace

from app.oauth.answer import Answer
from app.oauth.call import Call
from app.operations.clients import dpop_proofs
from app.operations.directory.lookups import AuthenticatedClient


def prove(call: Call, authenticated: AuthenticatedClient) -> AuthenticatedClient:
    """The client with the key that its request proves, if it proves one. Raises InvalidProof and NonceNeeded.

    A proof counts once: a request that is decided again by a fresh view of the client does not spend it again.
    """
    if call.proven_key is None:
        if call.proof is None and not dpop_proofs.is_demanded(authenticated.client):
            return authenticated
        call.proven_key = dpop_proofs.key_of_request(
            authenticated, call.proof, method=call.method, url=call.url
        )
    if call.proven_key is None:
        return authenticated
    call.authenticated = replace(authenticated, dpop_jkt=call.proven_key)
    return call.authenticated


def offer_nonce(given: Answer, call: Call) -> Answer:
    """Who sends proofs is told the nonce for the next one (RFC 9449 section 8.2)."""
    if call.proof is not None:
        given.headers.append(("DPoP-Nonce", dpop_proofs.fresh_nonce()))
    return given
