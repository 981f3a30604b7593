"""Client ID metadata documents (draft-ietf-oauth-client-id-metadata-document): a client_id that is an address.

The document under the address is what the client says of itself, in the words of RFC 7591; the address is all that
vouches for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from app.rules.clients.client_types import NONE, PRIVATE_KEY_JWT
from app.rules.clients.redirect_uris import redirect_uri_problem
from app.rules.errors import InvalidInput

LARGEST_DOCUMENT = 5 * 1024
LONGEST_CLIENT_ID = 500
SHORTEST_LIFE, LONGEST_LIFE = timedelta(minutes=1), timedelta(hours=24)
DEFAULT_LIFE = timedelta(hours=1)
_MAX_AGE = re.compile(r'(?:^|,)\s*max-age\s*=\s*"?([0-9]{1,9})"?\s*(?:,|$)', re.IGNORECASE)
_FRESH_NEVER = re.compile(r"(?:^|,)\s*(?:no-store|no-cache)\b", re.IGNORECASE)
_SECRETS = ("client_secret", "client_secret_expires_at")


def is_document_address(client_id: str) -> bool:
    """Whether the ``client_id`` is an address that may hold a metadata document (DC-3).

    An https URL with a host and a path, without fragment, user name, dot segments, wildcard or escapes that break.
    """
    if not client_id.startswith("https://") or len(client_id) > LONGEST_CLIENT_ID:
        return False
    if redirect_uri_problem(client_id, client_type="web") is not None:
        return False
    return urlsplit(client_id).path not in ("", "/")


def host_of_document(client_id: str) -> str:
    """The host, and the port where one is named, that answers for the client."""
    return urlsplit(client_id).netloc


def document_metadata(client_id: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of RFC 7591 in the document. Raises InvalidInput when it is not this client's or holds a secret."""
    if document.get("client_id") != client_id:
        raise InvalidInput("The document names another client_id.", field="client_id", code="other_client")
    if any(name in document for name in _SECRETS):
        raise InvalidInput(
            "A document that everybody may read holds no secret.", field="client_secret", code="not_allowed"
        )
    method = document.get("token_endpoint_auth_method", NONE)
    if method not in (NONE, PRIVATE_KEY_JWT):
        raise InvalidInput(
            "A client with a metadata document uses none or private_key_jwt.",
            field="token_endpoint_auth_method",
            code="not_allowed",
        )
    return {**document, "token_endpoint_auth_method": method}


def life_of(headers: Mapping[str, str]) -> timedelta:
    """How long the answer may be kept, by its Cache-Control (RFC 9111 section 5.2), within a minute and a day."""
    control = headers.get("cache-control", "")
    if _FRESH_NEVER.search(control):
        return SHORTEST_LIFE
    match = _MAX_AGE.search(control)
    wanted = timedelta(seconds=int(match[1])) if match else DEFAULT_LIFE
    return min(max(wanted, SHORTEST_LIFE), LONGEST_LIFE)
