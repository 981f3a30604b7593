"""Logout: requests of clients (OpenID Connect RP-Initiated Logout 1.0) and back-channel logout tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from msgspec import Struct

from app.config import current
from app.operations.clients.client_authentication import find_authenticating_client
from app.operations.directory import lookups
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.grants.logout import KIND
from app.operations.store import clock, outbox, outgoing_http
from app.operations.store.outbox import DeliveryPaused, DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.tokens import access_tokens, id_tokens
from app.operations.tokens.id_tokens import subject_of
from app.rules.authorization.authorization_request import MAX_ID_TOKEN_HINT_LENGTH
from app.rules.clients.redirect_uris import PAIRWISE
from app.rules.errors import NotFound, TooManyRequests
from app.rules.identifiers import first_id_at, parse_client_id, parse_public_id, public_id
from app.rules.organizations.organizations import ROOT_SLUG

EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPE = "logout+jwt"
TOKEN_LIFETIME = timedelta(minutes=2)
_FORM = "application/x-www-form-urlencoded"


class HintedSignIn(Struct, frozen=True):
    """The sign-in of an ID token; ``subject`` is the ``sub`` that the client knows."""

    client_id: str
    subject: str
    session_id: str | None


def read_hint(organization: OrganizationSnapshot, hint: str) -> HintedSignIn | None:
    """Return the sign-in of an ID token of the organization, or None if the organization did not issue it.

    Expired ID tokens are accepted, also with a retired key as long as it is published.
    """
    if len(hint) > MAX_ID_TOKEN_HINT_LENGTH:
        return None
    claims = signing_keys.read_jwt(organization.id, hint, token_type="JWT")  # noqa: S106 - a header, no password
    if claims is None or not _is_id_token(claims) or claims["iss"] != organization.issuer:
        return None
    sid = claims.get("sid")
    return HintedSignIn(claims["aud"], claims["sub"], sid if isinstance(sid, str) else None)


def _is_id_token(claims: dict[str, Any]) -> bool:
    """Return whether the JWT is an ID token. Userinfo responses are signed with the same keys."""
    texts = all(isinstance(claims.get(name), str) for name in ("iss", "aud", "sub"))
    return texts and "at_hash" in claims and "auth_time" in claims


class LogoutRequest(Struct, frozen=True):
    """A logout request. ``client`` is the one that it names, which is verified only if there is a ``hint``."""

    organization: OrganizationSnapshot
    client: ClientSnapshot | None
    hint: HintedSignIn | None
    redirect_uri: str | None = None

    @property
    def has_unregistered_redirect(self) -> bool:
        """Whether it asks to return to a URI that the client has not registered for this (section 3)."""
        if self.redirect_uri is None:
            return False
        return self.client is None or self.redirect_uri not in self.client.document.get(
            "post_logout_redirect_uris", ()
        )

    def skips_confirmation(self, user_id: UUID) -> bool:
        """Return whether the user's session may end without confirmation: the client has its ID token (CF-4).

        A request with an unregistered redirect URI is asked about: the user would be left on another page than
        expected, and the client may not have made it.
        """
        if self.client is None or self.hint is None or self.has_unregistered_redirect:
            return False
        return self.hint.subject == subject_of(self.client, user_id)


def read_logout_request(
    sent: Mapping[str, str], *, organization_id: str | None = None
) -> LogoutRequest | None:
    """Return the logout request, or None if its organization cannot be determined.

    With ``organization_id``, only clients of that organization are accepted (MX-3). Invalid parameters do not prevent
    the logout: without a valid hint, the user confirms it.
    """
    organization = _organization(sent, organization_id)
    if organization is None or not organization.is_active:
        return None
    given, named = sent.get("id_token_hint"), sent.get("client_id")
    hint = read_hint(organization, given) if given is not None else None
    if hint is not None and named not in (None, hint.client_id):
        hint = None  # Section 2: a hint for another client than the named one is ignored.
    client = _client(organization, hint.client_id if hint is not None else named)
    if client is None:
        hint = None
    return LogoutRequest(organization, client, hint, sent.get("post_logout_redirect_uri"))


def _organization(sent: Mapping[str, str], organization_id: str | None) -> OrganizationSnapshot | None:
    """Return the organization of the path, else of the hint's issuer, else of the client."""
    try:
        if organization_id is not None:
            return lookups.get_organization_by_id(organization_id, fresh=False)
        # Unverified, to find the key. Issuers are ASCII, and JSON can contain text that the database would reject.
        issuer = access_tokens.unverified_claims(sent.get("id_token_hint", "")).get("iss")
        base = current().base_url
        if issuer == base:
            return lookups.get_organization_by_slug(ROOT_SLUG, fresh=False)
        if isinstance(issuer, str) and issuer.isascii() and issuer.startswith(f"{base}/organizations/"):
            return lookups.get_organization_by_slug(
                issuer.removeprefix(f"{base}/organizations/"), fresh=False
            )
    except NotFound:
        return None
    client = lookups.find_client(sent.get("client_id", ""))
    return client.organization if client is not None else None


def _client(organization: OrganizationSnapshot, client_id: str | None) -> ClientSnapshot | None:
    if client_id is None:
        return None
    try:
        client = find_authenticating_client(client_id, organization_id=organization.id)
    except TooManyRequests:
        return None
    return client if client is not None and client.is_active else None


def register() -> None:
    """Register the delivery of logout tokens with the outbox."""
    outbox.register_delivery(KIND, deliver, to_external_server=True)


def deliver(message: Message) -> None:
    """Send a logout token to the client (OpenID Connect Back-Channel Logout 1.0 section 2.5).

    The token is signed on delivery, because it is valid for two minutes and the message may have waited for hours.
    Raises DeliveryRejected if the client no longer has a logout URI or rejects the token (section 2.8), DeliveryPaused
    while the organization is suspended, and OutgoingRequestFailed if the delivery should be retried.
    """
    client = _client_of_logout(message)
    if client is not None and client.organization.is_suspended:
        raise DeliveryPaused("the organization is suspended", outbox.SUSPENSION_PAUSE)
    uri = client.document.get("backchannel_logout_uri") if client is not None else None
    if client is None or not client.is_active or not uri:
        raise DeliveryRejected("the client has no logout URI")
    body = urlencode({"logout_token": sign_logout_token(client, message)}).encode()
    reply = outgoing_http.post(uri, organization_id=client.organization.id, body=body, content_type=_FORM)
    if reply.status == 400:
        raise DeliveryRejected("the client answered 400")
    if not 200 <= reply.status < 300:
        raise OutgoingRequestFailed(f"The client answered {reply.status} to a logout token.")


def sign_logout_token(client: ClientSnapshot, message: Message) -> str:
    """Return a signed logout token (section 2.4) with the ``sub`` and ``sid`` of the client's ID token.

    ``jti`` is the message's id, so that a client recognizes a repeated delivery. There is no ``sub`` if the client may
    know the user by another one, of an earlier sector.
    """
    user_id = parse_public_id("usr", message.payload["user"])
    session_id = parse_public_id("ses", message.payload["session"])
    if user_id is None or session_id is None:
        raise ValueError("the message contains no user or session")
    now = clock.now()
    subject = None if _began_before_cutoff(client, session_id) else subject_of(client, user_id)
    claims: dict[str, Any] = {
        "iss": client.organization.issuer,
        **({} if subject is None else {"sub": subject}),
        "aud": client.client_id,
        "iat": int(now.timestamp()),
        "exp": int((now + TOKEN_LIFETIME).timestamp()),
        "jti": public_id("out", message.id),
        "sid": message.payload["session"],
        "events": {EVENT: {}},
    }
    return signing_keys.sign_jwt(client.organization, id_tokens.algorithm_of(client), claims, token_type=TYPE)


def _began_before_cutoff(client: ClientSnapshot, session_id: UUID) -> bool:
    cutoff = client.tokens_not_before if client.document.get("subject_type") == PAIRWISE else None
    # Ids are ordered by time.
    return cutoff is not None and session_id < first_id_at(cutoff)


def _client_of_logout(message: Message) -> ClientSnapshot | None:
    named = parse_client_id(message.payload["client"])
    return lookups.find_client_by_id(*named, fresh=True) if named is not None else None
