"""What a browser sends about a passkey: checked by our own code before the library that verifies it sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from app.rules.errors import DomainError
from app.rules.strict_json import InvalidJson, load_object

LONGEST = 32 * 1024
"""Of the whole answer, in bytes; the largest that authenticators make is a quarter of it."""
LONGEST_CREDENTIAL_ID = 1364
TRANSPORTS = ("ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_CREATED = ("clientDataJSON", "attestationObject")
_USED = ("clientDataJSON", "authenticatorData", "signature", "userHandle")


class BadAnswer(DomainError):
    """The browser's answer is not what a browser sends."""

    code = "invalid_passkey"

    def __init__(self) -> None:
        super().__init__("Your browser did not answer as expected. Try again.")


@dataclass(frozen=True, slots=True)
class CreatedAnswer:
    """A passkey was made; ``content`` is what the library verifies."""

    credential_id: str
    content: Mapping[str, Any]
    transports: tuple[str, ...]
    is_discoverable: bool


@dataclass(frozen=True, slots=True)
class UsedAnswer:
    """A passkey was used. ``handle`` is what the authenticator calls the person, where it says so."""

    credential_id: str
    content: Mapping[str, Any]
    handle: str | None


def read_created(text: str) -> CreatedAnswer:
    """RegistrationResponseJSON (section 5.1). Raises BadAnswer."""
    document, response = _read(text, _CREATED)
    named = response.get("transports")
    transports = {name for name in named if name in TRANSPORTS} if _is_list_of_text(named) else set()
    properties = document.get("clientExtensionResults")
    kept = properties.get("credProps") if isinstance(properties, dict) else None
    return CreatedAnswer(
        document["id"],
        _content(document, response, _CREATED),
        tuple(sorted(transports)),
        isinstance(kept, dict) and kept.get("rk") is True,
    )


def read_used(text: str) -> UsedAnswer:
    """AuthenticationResponseJSON (section 5.1). Raises BadAnswer."""
    document, response = _read(text, _USED[:-1])
    handle = response.get("userHandle") or None
    if handle is not None and not _is_encoded(handle):
        raise BadAnswer
    return UsedAnswer(document["id"], _content(document, response, _USED), handle)


def _read(text: str, needed: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(text) > LONGEST:
        raise BadAnswer
    try:
        document = load_object(text.encode("utf-8", "surrogatepass"))
    except InvalidJson as error:
        raise BadAnswer from error
    response = document.get("response")
    if not isinstance(response, dict) or document.get("type") != "public-key":
        raise BadAnswer
    if not all(_is_encoded(response.get(name)) for name in needed):
        raise BadAnswer
    name = document.get("id")
    if not _is_encoded(name) or len(name) > LONGEST_CREDENTIAL_ID:
        raise BadAnswer
    return document, response


def _content(
    document: Mapping[str, Any], response: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    # Nothing else reaches the library; of two names for one thing the one that was checked counts.
    return {
        "id": document["id"],
        "rawId": document["id"],
        "type": "public-key",
        "response": {name: response[name] for name in names if response.get(name)},
    }


def _is_encoded(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _BASE64URL.fullmatch(value) is not None


def _is_list_of_text(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
