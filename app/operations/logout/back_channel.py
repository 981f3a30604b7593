"""Back-channel logout (OpenID Connect Back-Channel Logout 1.0): a signed token, posted to the client's own address."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from app.operations import clock, directory, outgoing
from app.operations.directory import ClientView
from app.operations.logout.listeners import KIND
from app.operations.outgoing import OutgoingFailed
from app.operations.tokens import id_tokens, signing_keys
from app.operations.tokens.subjects import subject_of
from app.operations.upkeep import outbox
from app.operations.upkeep.outbox import Message, Refused
from app.rules.identifiers import parse_client_id, parse_public_id, public_id

EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPE = "logout+jwt"
LIFE = timedelta(minutes=2)
_FORM = "application/x-www-form-urlencoded"
_MOST_BYTES = 4096


def register() -> None:
    """The outbox delivers logout tokens."""
    outbox.register_delivery(KIND, deliver, to_strangers=True)


def deliver(message: Message) -> None:
    """The client knows that the sign-in is over (section 2.5).

    The token is signed now: it lives two minutes, and the message may have waited for hours. Raises Refused when the
    client asks for no news any more or says that the token is wrong (section 2.8), OutgoingFailed when it should be
    tried again.
    """
    client = _client(message)
    uri = client.document.get("backchannel_logout_uri") if client is not None else None
    if client is None or not client.is_active or not uri:
        raise Refused("there is nobody to tell")
    body = urlencode({"logout_token": sign_logout_token(client, message)}).encode()
    reply = outgoing.post(
        uri, organization_id=client.organization.id, body=body, content_type=_FORM, most_bytes=_MOST_BYTES
    )
    if reply.status == 400:
        raise Refused("it answered 400")
    if not 200 <= reply.status < 300:
        raise OutgoingFailed(f"The client answered {reply.status} to a logout token.")


def sign_logout_token(client: ClientView, message: Message) -> str:
    """A logout token (section 2.4) with ``sub`` and ``sid`` as the client's ID token had them.

    ``jti`` is the message's own: a client that heard it and whose answer was lost may know it again.
    """
    user_id = parse_public_id("usr", message.payload["user"])
    if user_id is None:
        raise ValueError("the message names no user")
    now = clock.now()
    claims: dict[str, Any] = {
        "iss": client.organization.issuer,
        "sub": subject_of(client, user_id),
        "aud": client.client_id,
        "iat": int(now.timestamp()),
        "exp": int((now + LIFE).timestamp()),
        "jti": public_id("out", message.id),
        "sid": message.payload["session"],
        "events": {EVENT: {}},
    }
    return signing_keys.sign(client.organization, id_tokens.algorithm_of(client), claims, token_type=TYPE)


def _client(message: Message) -> ClientView | None:
    named = parse_client_id(message.payload["client"])
    return directory.client_of_row(*named, fresh=True) if named is not None else None
