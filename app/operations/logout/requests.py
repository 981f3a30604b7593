"""Logout requests of clients (OpenID Connect RP-Initiated Logout 1.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from app.config import current
from app.operations import directory
from app.operations.authorization.id_token_hints import HintedSignIn, read_hint
from app.operations.client_proof.wire_clients import find_authenticating_client
from app.operations.directory import ClientView, OrganizationView
from app.operations.tokens.subjects import subject_of
from app.rules.authorization.redirects import with_parameters
from app.rules.errors import NotFound, TooManyRequests
from app.rules.tokens.jwt import unverified_claim

_ROOT = "root"


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """What a client asked for. ``client`` is who the request says it is; only ``hint`` proves it.

    ``redirect_to`` is where the browser may go afterwards, with ``state``; None when it stays here.
    """

    organization: OrganizationView
    client: ClientView | None
    hint: HintedSignIn | None
    redirect_to: str | None

    def may_end_at_once(self, user_id: UUID) -> bool:
        """Whether the sign-in of this user may end without a question: the client was told of it (CF-4)."""
        if self.client is None or self.hint is None:
            return False
        return self.hint.subject == subject_of(self.client, user_id)


def read_logout_request(
    sent: Mapping[str, str], *, organization_id: str | None = None
) -> LogoutRequest | None:
    """The request, or None when nothing in it tells which organization it is about.

    With ``organization_id`` it is about that one, and only its clients count (MX-3). Nothing that is wrong stops the
    logout: a hint that proves nothing means a question, and a ``post_logout_redirect_uri`` that the client did not
    register, or that comes without a good hint, is not followed (OR-4).
    """
    organization = _organization(sent, organization_id)
    if organization is None or not organization.is_active:
        return None
    given, named = sent.get("id_token_hint"), sent.get("client_id")
    hint = read_hint(organization, given) if given is not None else None
    if hint is not None and named not in (None, hint.client_id):
        hint = None  # Section 2: a hint for another client than the one that is named counts for nothing.
    client = _client(organization, hint.client_id if hint is not None else named)
    if client is None:
        hint = None
    return LogoutRequest(organization, client, hint, _redirect(sent, client) if hint is not None else None)


def _organization(sent: Mapping[str, str], organization_id: str | None) -> OrganizationView | None:
    """That of the path; else that of the issuer which the hint names, or of the client."""
    try:
        if organization_id is not None:
            return directory.organization_by_id(organization_id, fresh=False)
        issuer = unverified_claim(sent.get("id_token_hint", ""), "iss")
        base = current().base_url
        if issuer == base:
            return directory.organization_by_slug(_ROOT, fresh=False)
        if issuer is not None and issuer.startswith(f"{base}/organizations/"):
            return directory.organization_by_slug(issuer.removeprefix(f"{base}/organizations/"), fresh=False)
    except NotFound:
        return None
    client = directory.find_client(sent.get("client_id", ""))
    return client.organization if client is not None else None


def _client(organization: OrganizationView, client_id: str | None) -> ClientView | None:
    if client_id is None:
        return None
    try:
        client = find_authenticating_client(client_id, organization_id=organization.id)
    except TooManyRequests:
        return None
    return client if client is not None and client.is_active else None


def _redirect(sent: Mapping[str, str], client: ClientView | None) -> str | None:
    wanted = sent.get("post_logout_redirect_uri")
    if client is None or wanted is None or wanted not in client.document["post_logout_redirect_uris"]:
        return None
    return with_parameters(wanted, {"state": sent.get("state")})
