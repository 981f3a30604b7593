"""Redeeming what an identity provider answers: token request, ID token and userinfo (OpenID Connect Core 1.0)."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct

from app.operations.sign_in.identity_providers import IdentityProviderRecord, read_client_secret
from app.operations.sign_in.provider_metadata import Published, read_published, verify_with_keys
from app.operations.store import clock, outgoing_http
from app.rules.sign_in.identity_providers import MAX_DOCUMENT_BYTES, is_access_token, token_request
from app.rules.sign_in.provider_tokens import (
    ProviderIdentity,
    ProviderTokenInvalid,
    has_claim,
    read_identity,
    verify_id_token,
)
from app.rules.strict_json import InvalidJson, load_object


class ProviderAnswer(Struct, frozen=True):
    """The parameters that a provider's answer has in the redirect URI (section 3.1.2.5, RFC 9207)."""

    state: str = ""
    code: str = ""
    error: str = ""
    issuer: str | None = None


def redeem_answer(
    provider: IdentityProviderRecord,
    answer: ProviderAnswer,
    *,
    nonce: str,
    code_verifier: str,
    groups_claim: str | None,
) -> ProviderIdentity:
    """Redeem the code of the answer to a request with this ``nonce`` and ``code_verifier``, and return who signed in.

    ``groups_claim`` names the claim with the user's groups at the provider, if they matter.
    Call it outside of a transaction. Raises ProviderUnusable, OutgoingRequestFailed, OutgoingRequestBlocked,
    ProviderTokenInvalid, and Conflict if the provider was deleted meanwhile.
    """
    published = read_published(provider.organization_id, provider.issuer)
    if answer.issuer not in (
        {provider.issuer} if published.metadata.sends_issuer else {None, provider.issuer}
    ):
        raise ProviderTokenInvalid("another issuer sent the answer")
    client_secret = read_client_secret(provider)
    form, headers = token_request(
        published.metadata,
        client_id=provider.client_id,
        client_secret=client_secret,
        code=answer.code,
        redirect_uri=provider.redirect_uri,
        code_verifier=code_verifier,
    )
    tokens = _load(
        outgoing_http.request_for_sign_in(
            published.metadata.token_endpoint,
            organization_id=provider.organization_id,
            form=form,
            headers=headers,
            max_bytes=MAX_DOCUMENT_BYTES,
        ),
        "the token endpoint",
        secret=client_secret,
    )
    claims = _verify(provider, tokens.get("id_token"), nonce)
    wanted = () if "email" in claims else ("email", "email_verified")
    if groups_claim is not None and not has_claim(claims, groups_claim):
        wanted = (*wanted, groups_claim, "_claim_names")
    if wanted and is_access_token(tokens.get("access_token")):
        described = _read_userinfo(provider, published, tokens["access_token"], claims["sub"])
        name = claims.get("name") or described.get("name")
        claims |= {claim: described.get(claim) for claim in wanted} | {"name": name}
    return read_identity(claims, trust_emails=provider.trust_emails, groups_claim=groups_claim)


def _verify(provider: IdentityProviderRecord, id_token: Any, nonce: str) -> dict[str, Any]:
    if not isinstance(id_token, str):
        raise ProviderTokenInvalid("the token endpoint returned no ID token")
    verify = partial(
        verify_id_token,
        id_token,
        issuer=provider.issuer,
        client_id=provider.client_id,
        nonce=nonce,
        now=clock.now(),
    )
    return verify_with_keys(provider.organization_id, provider.issuer, verify)


def _read_userinfo(
    provider: IdentityProviderRecord, published: Published, access_token: str, subject: str
) -> dict[str, Any]:
    """Return the claims of the userinfo endpoint (section 5.3), or none if there is no such endpoint."""
    if published.metadata.userinfo_endpoint is None:
        return {}
    reply = outgoing_http.request_for_sign_in(
        published.metadata.userinfo_endpoint,
        organization_id=provider.organization_id,
        headers={"Authorization": f"Bearer {access_token}"},
        max_bytes=MAX_DOCUMENT_BYTES,
    )
    claims = _load(reply, "the userinfo endpoint")
    if claims.get("sub") != subject:
        raise ProviderTokenInvalid("the userinfo endpoint describes another user")
    return claims


def _load(reply: outgoing_http.HttpResponse, source: str, *, secret: str | None = None) -> dict[str, Any]:
    """Return the JSON object of a response. Raises ProviderTokenInvalid, which quotes errors without the ``secret``."""
    try:
        content = load_object(reply.body)
    except InvalidJson as error:
        raise ProviderTokenInvalid(f"{source} answered {reply.status} without a JSON object") from error
    if reply.status != 200:
        said = [str(content[name]) for name in ("error", "error_description") if content.get(name)]
        if secret is not None:
            said = [text.replace(secret, "(client secret)") for text in said]
        raise ProviderTokenInvalid(
            " ".join([f"{source} answered {reply.status}", *(ascii(text[:200]) for text in said)])
        )
    return content
