"""What identity providers publish: their metadata and keys (OpenID Connect Discovery 1.0), read and cached."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import Struct

from app.extensions import in_transaction
from app.fast_path.cache import BoundedCache
from app.operations.store import outgoing_http
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.rules.errors import InvalidInput
from app.rules.languages.translation import TranslatableString, lazy_gettext, lazy_value
from app.rules.sign_in.identity_providers import (
    KEY_REFRESH_INTERVAL,
    MAX_DOCUMENT_BYTES,
    METADATA_LIFETIME,
    RETRY_INTERVAL,
    MetadataInvalid,
    ProviderMetadata,
    metadata_url,
    parse_keys,
    parse_metadata,
)
from app.rules.sign_in.provider_tokens import UnknownKey
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import InvalidJson, load_object
from app.uptime import uptime

T = TypeVar("T")
_CHECK_LIFETIME = timedelta(minutes=1)
_log = logging.getLogger("gatehouse.sign_in")


class ProviderUnusable(Exception):
    """The provider's metadata or keys could not be read. The message is for administrators.

    It ``is_repeated`` if they were not requested again, because that failed a moment ago.
    """

    def __init__(self, problem: str, *, is_repeated: bool = False) -> None:
        super().__init__(problem)
        self.is_repeated = is_repeated


class Published(Struct, frozen=True):
    """What a provider publishes. ``read_at`` is the ``uptime`` at which it was read, in seconds."""

    metadata: ProviderMetadata
    keys: Mapping[str, Any]
    read_at: float

    def is_younger_than(self, age: timedelta) -> bool:
        """Return whether it was read within this time."""
        return uptime() - self.read_at < age.total_seconds()


_published: BoundedCache[Published] = BoundedCache(1_000)
# When reading them failed, so that visitors of the sign-in page cannot make this server ask again and again.
_failed: BoundedCache[float] = BoundedCache(1_000)


def read_published(organization_id: str, issuer: str, *, needs_new_keys: bool = False) -> Published:
    """Return the metadata and keys of the organization's provider, at most a day old.

    If they cannot be read, the last ones are used, and another attempt is made after ``RETRY_INTERVAL``.
    ``needs_new_keys`` reads them again, at most once a minute. Call it outside of a transaction. Raises
    ProviderUnusable if there are none.
    """
    known = _published.get(organization_id, issuer)
    if known is not None and known.is_younger_than(
        KEY_REFRESH_INTERVAL if needs_new_keys else METADATA_LIFETIME
    ):
        return known
    now = uptime()
    failed_at = _failed.get(organization_id, issuer)
    if failed_at is None or now - failed_at >= RETRY_INTERVAL.total_seconds():
        try:
            return _fetch(organization_id, issuer)
        except (OutgoingRequestFailed, OutgoingRequestBlocked, MetadataInvalid) as error:
            _failed.put(organization_id, issuer, value=now)
            _log.warning("the metadata of %s were not read for %s: %s", issuer, organization_id, error)
            if known is None:
                raise ProviderUnusable(f"its metadata could not be read: {error}") from error
    if known is None:
        raise ProviderUnusable("its metadata could not be read a moment ago", is_repeated=True)
    return known


def verify_with_keys(organization_id: str, issuer: str, verify: Callable[..., T]) -> T:
    """Return what ``verify`` returns for the provider's ``keys``, which are read again if it does not know the key.

    Call it outside of a transaction. Raises ProviderUnusable, and as ``verify``.
    """
    try:
        return verify(keys=read_published(organization_id, issuer).keys)
    except UnknownKey:
        return verify(keys=read_published(organization_id, issuer, needs_new_keys=True).keys)


def require_usable_issuer(organization_id: str, issuer: str) -> None:
    """Require metadata and keys that were read within a minute, and read them outside of a transaction.

    Raises InvalidInput naming ``issuer``.
    """
    known = _published.get(organization_id, issuer)
    if known is not None and known.is_younger_than(_CHECK_LIFETIME):
        return
    if in_transaction():
        raise InvalidInput("The provider's configuration could not be read. Try again.", field="issuer")
    try:
        _fetch(organization_id, issuer)
    except (OutgoingRequestFailed, OutgoingRequestBlocked, MetadataInvalid) as error:
        message = lazy_gettext(
            "The provider's configuration at %(url)s can't be used: %(reason)s",
            url=metadata_url(issuer),
            reason=_as_value(error.description),
        )
        raise InvalidInput(message, field="issuer", code="invalid_metadata") from error


def _as_value(description: str) -> str:
    """Return the description as a parameter that is translated with the message around it."""
    return description if isinstance(description, TranslatableString) else lazy_value(description)


def _fetch(organization_id: str, issuer: str) -> Published:
    metadata = parse_metadata(_fetch_object(organization_id, metadata_url(issuer)), issuer)
    keys = parse_keys(_fetch_object(organization_id, metadata.jwks_uri))
    published = Published(metadata, keys, uptime())
    _published.put(organization_id, issuer, value=published)
    return published


def _fetch_object(organization_id: str, url: str) -> dict[str, Any]:
    reply = outgoing_http.get(
        url,
        organization_id=organization_id,
        accept="application/json, application/jwk-set+json",
        max_bytes=MAX_DOCUMENT_BYTES,
    )
    if reply.status != 200:
        raise MetadataInvalid(
            lazy_gettext("%(url)s answered with status %(status)s.", url=url, status=reply.status)
        )
    try:
        return load_object(reply.body)
    except InvalidJson as error:
        raise MetadataInvalid(lazy_gettext("%(url)s is not a JSON object.", url=url)) from error
