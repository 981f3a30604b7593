"""Client ID metadata documents (draft-ietf-oauth-client-id-metadata-document): a client_id that is a URL.

The document at the URL contains the client's metadata (RFC 7591). Only control of the URL authenticates it.
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

MAX_DOCUMENT_BYTES = 5 * 1024
MAX_CLIENT_ID_LENGTH = 500
MIN_CACHE_TIME, MAX_CACHE_TIME = timedelta(minutes=1), timedelta(hours=24)
DEFAULT_CACHE_TIME = timedelta(hours=1)
_MAX_AGE = re.compile(r'(?:^|,)\s*max-age\s*=\s*"?([0-9]{1,9})"?\s*(?:,|$)', re.IGNORECASE)
_NO_CACHE = re.compile(r"(?:^|,)\s*(?:no-store|no-cache)\b", re.IGNORECASE)
_SECRETS = ("client_secret", "client_secret_expires_at")


def is_document_url(client_id: str) -> bool:
    """Return whether the ``client_id`` is a URL that can have a metadata document (DC-3).

    It must be an https URL with a host and a path, without fragment, user name, dot segments, wildcards or
    broken escapes.
    """
    if not client_id.startswith("https://") or len(client_id) > MAX_CLIENT_ID_LENGTH:
        return False
    if redirect_uri_problem(client_id, client_type="web") is not None:
        return False
    return urlsplit(client_id).path not in ("", "/")


def get_document_host(client_id: str) -> str:
    """Return the host of the URL, with the port if there is one."""
    return urlsplit(client_id).netloc


def document_metadata(client_id: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's metadata (RFC 7591).

    Raises InvalidInput if it belongs to another client or contains a secret.
    """
    if document.get("client_id") != client_id:
        raise InvalidInput("The document names another client_id.", field="client_id", code="other_client")
    if any(name in document for name in _SECRETS):
        raise InvalidInput(
            "A public metadata document must not contain a secret.", field="client_secret", code="not_allowed"
        )
    method = document.get("token_endpoint_auth_method", NONE)
    if method not in (NONE, PRIVATE_KEY_JWT):
        raise InvalidInput(
            "A client with a metadata document must use none or private_key_jwt.",
            field="token_endpoint_auth_method",
            code="not_allowed",
        )
    return {**document, "token_endpoint_auth_method": method}


def get_cache_time(headers: Mapping[str, str]) -> timedelta:
    """Return how long to cache the response by its Cache-Control (RFC 9111 section 5.2).

    It is between a minute and a day.
    """
    control = headers.get("cache-control", "")
    if _NO_CACHE.search(control):
        return MIN_CACHE_TIME
    match = _MAX_AGE.search(control)
    requested = timedelta(seconds=int(match[1])) if match else DEFAULT_CACHE_TIME
    return min(max(requested, MIN_CACHE_TIME), MAX_CACHE_TIME)
