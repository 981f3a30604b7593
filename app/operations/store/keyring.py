"""Keys at rest: the instance's master key wraps a data key per organization, which seals its secrets.

Deleting an organization's data key makes all that it sealed unreadable (SE-8), and renewing the master key
rewraps data keys alone.
"""

from __future__ import annotations

import functools
import os

from sqlalchemy import select

from app.config import current
from app.extensions import db
from app.models.organization import Organization
from app.operations.bounded import Kept
from app.operations.store.transactions import read
from app.rules import sealing
from app.rules.errors import NotFound

_data_keys: Kept[bytes] = Kept(10_000)


def new_data_key(organization_id: str) -> bytes:
    """A fresh data key for the organization, wrapped; goes into its row."""
    return sealing.wrap_data_key(_master_key(), organization_id, os.urandom(32))


def wrap_data_key(organization_id: str, data_key: bytes) -> bytes:
    """The data key of an organization that comes from elsewhere, wrapped; goes into its row."""
    return sealing.wrap_data_key(_master_key(), organization_id, data_key)


def unwrap_data_key(organization_id: str, wrapped: bytes) -> bytes:
    """The data key, wrapped under the master key or the previous one. Raises CannotOpen for any other."""
    try:
        return sealing.unwrap_data_key(_master_key(), organization_id, wrapped)
    except sealing.UnsealError:
        previous = current().previous_master_key
        if previous is None:
            raise
        return sealing.unwrap_data_key(previous, organization_id, wrapped)


def rewrap_data_key(organization_id: str, wrapped: bytes) -> bytes | None:
    """The data key under the master key, from the previous one; None when it is so already. Raises CannotOpen."""
    try:
        sealing.unwrap_data_key(_master_key(), organization_id, wrapped)
    except sealing.UnsealError:
        return sealing.wrap_data_key(
            _master_key(), organization_id, unwrap_data_key(organization_id, wrapped)
        )
    return None


def has_previous_master_key() -> bool:
    """Whether the master key is being renewed: the one before is configured beside it."""
    return current().previous_master_key is not None


def seal(organization_id: str, plaintext: bytes, associated_data: str) -> bytes:
    """Sealed under the organization's data key. ``associated_data`` names the place it may be opened in."""
    return sealing.seal(_data_key(organization_id), plaintext, _bound(organization_id, associated_data))


def unseal(organization_id: str, sealed: bytes, associated_data: str) -> bytes:
    """The plaintext. Raises sealing.CannotOpen when the sealed bytes were moved or changed."""
    return sealing.unseal(_data_key(organization_id), sealed, _bound(organization_id, associated_data))


def derive_organization_key(organization_id: str, label: str) -> bytes:
    """The organization's 256-bit subkey for one purpose; it stays the same when the master key is renewed."""
    return _derived(_data_key(organization_id), label)


def refresh_tag_key(organization_id: str) -> bytes:
    """What tags the organization's refresh tokens. It is the organization's own: they go with it when it moves."""
    return derive_organization_key(organization_id, "refresh token tag")


def derive_instance_key(label: str) -> bytes:
    """The instance's 256-bit subkey for one purpose: ``cursors``, ``dpop-nonce`` …"""
    config = current()
    return _derived(config.secret_key, label)


def clear_cached_keys(organization_id: str) -> None:
    """The organization's data key is no longer held in this process."""
    _data_keys.forget(organization_id, _master_key())
    _derived.cache_clear()


@functools.lru_cache(maxsize=4096)
def _derived(key: bytes, label: str) -> bytes:
    return sealing.derive(key, f"gatehouse {label}")


def _data_key(organization_id: str) -> bytes:
    cached = _data_keys.get(organization_id, _master_key())
    if cached is None:
        cached = unwrap_data_key(organization_id, _wrapped(organization_id))
        _data_keys.put(organization_id, _master_key(), value=cached)
    return cached


@read
def _wrapped(organization_id: str) -> bytes:
    wrapped = db.session.scalar(select(Organization.data_key).where(Organization.id == organization_id))
    if wrapped is None:
        raise NotFound("The organization's keys are gone.")
    return wrapped


def _master_key() -> bytes:
    config = current()
    return config.master_key


def _bound(organization_id: str, associated_data: str) -> bytes:
    return f"1|{organization_id}|{associated_data}".encode()
