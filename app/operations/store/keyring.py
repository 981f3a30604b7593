"""Encryption keys: the master key wraps one data key per organization, which seals that organization's secrets.

Deleting a data key makes everything sealed with it unreadable (SE-8). Rotating the master key rewraps only data keys.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection

from sqlalchemy import select

from app.config import current
from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.organization import Organization
from app.operations.store.transactions import read
from app.rules import sealing
from app.rules.errors import NotFound

_data_keys: BoundedCache[bytes] = BoundedCache(10_000)


def new_data_key(organization_id: str) -> bytes:
    """Create a data key for the organization and return it wrapped, for the organization's row."""
    return wrap_data_key(organization_id, os.urandom(32))


def wrap_data_key(organization_id: str, data_key: bytes) -> bytes:
    """Wrap an imported data key for the organization's row."""
    return sealing.wrap_data_key(_master_key(), organization_id, data_key)


def unwrap_data_key(organization_id: str, wrapped: bytes) -> bytes:
    """Unwrap a data key with the master key or the previous master key. Raises UnsealError for any other."""
    try:
        return sealing.unwrap_data_key(_master_key(), organization_id, wrapped)
    except sealing.UnsealError:
        previous = current().previous_master_key
        if previous is None:
            raise
        return sealing.unwrap_data_key(previous, organization_id, wrapped)


def rewrap_data_key(organization_id: str, wrapped: bytes) -> bytes | None:
    """Rewrap a data key with the master key, or return None if it already is. Raises UnsealError."""
    try:
        sealing.unwrap_data_key(_master_key(), organization_id, wrapped)
    except sealing.UnsealError:
        return wrap_data_key(organization_id, unwrap_data_key(organization_id, wrapped))
    return None


def has_previous_master_key() -> bool:
    """Return whether the master key is being rotated, with the previous one configured beside it."""
    return current().previous_master_key is not None


def seal(organization_id: str, plaintext: bytes, associated_data: str) -> bytes:
    """Seal with the organization's data key. ``associated_data`` names the only place it can be unsealed in."""
    return sealing.seal(
        _data_key(organization_id), plaintext, _associated_data(organization_id, associated_data)
    )


def unseal(organization_id: str, sealed: bytes, associated_data: str) -> bytes:
    """Return the plaintext. Raises sealing.UnsealError if the sealed bytes were moved or changed."""
    return sealing.unseal(
        _data_key(organization_id), sealed, _associated_data(organization_id, associated_data)
    )


def derive_organization_key(organization_id: str, label: str) -> bytes:
    """Derive the organization's 256-bit subkey for one purpose. It survives a master key rotation."""
    return _derive(_data_key(organization_id), label)


def refresh_tag_key(organization_id: str) -> bytes:
    """Return the key that tags the refresh tokens of the organization. It moves with the organization."""
    return derive_organization_key(organization_id, "refresh token tag")


def derive_instance_key(label: str) -> bytes:
    """Derive the 256-bit subkey of the instance for one purpose: ``cursors``, ``dpop-nonce`` …"""
    return _derive(current().secret_key, label)


def fingerprint(key: bytes) -> str:
    """Return 16 hexadecimal digits that tell a key of the instance from another one, and nothing else about it."""
    return _derive(key, "fingerprint")[:8].hex()


def cache_data_keys(organization_ids: Collection[str]) -> None:
    """Load the data keys that this process has not cached with one query, for work on many organizations.

    A key that cannot be unwrapped is left out: its use raises UnsealError.
    """
    missing = [
        organization_id
        for organization_id in organization_ids
        if _data_keys.get(organization_id, _master_key()) is None
    ]
    for organization_id, wrapped in _find_wrapped_keys(missing).items():
        with contextlib.suppress(sealing.UnsealError):
            data_key = unwrap_data_key(organization_id, wrapped)
            _data_keys.put(organization_id, _master_key(), value=data_key)


def clear_cached_keys(organization_id: str) -> None:
    """Remove the organization's data key from this process's cache."""
    _data_keys.remove(organization_id, _master_key())
    _derive.cache_clear()


@functools.lru_cache(maxsize=4096)
def _derive(key: bytes, label: str) -> bytes:
    return sealing.derive(key, f"gatehouse {label}")


def _data_key(organization_id: str) -> bytes:
    cached = _data_keys.get(organization_id, _master_key())
    if cached is None:
        cached = unwrap_data_key(organization_id, _find_wrapped_key(organization_id))
        _data_keys.put(organization_id, _master_key(), value=cached)
    return cached


@read
def _find_wrapped_key(organization_id: str) -> bytes:
    wrapped = db.session.scalar(select(Organization.data_key).where(Organization.id == organization_id))
    if wrapped is None:
        raise NotFound("The encryption keys of this organization were deleted.")
    return wrapped


@read
def _find_wrapped_keys(organization_ids: Collection[str]) -> dict[str, bytes]:
    if not organization_ids:
        return {}
    found = select(Organization.id, Organization.data_key).where(Organization.id.in_(organization_ids))
    rows = db.session.execute(found)
    return {organization_id: wrapped for organization_id, wrapped in rows if wrapped is not None}


def _master_key() -> bytes:
    return current().master_key


def _associated_data(organization_id: str, associated_data: str) -> bytes:
    return f"1|{organization_id}|{associated_data}".encode()
