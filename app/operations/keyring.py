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
from app.operations.transaction import read
from app.rules import sealing
from app.rules.errors import NotFound

_data_keys: dict[tuple[bytes, str], bytes] = {}


def new_data_key(organization_id: str) -> bytes:
    """A fresh data key for the organization, wrapped; goes into its row."""
    return sealing.seal(_master_key(), os.urandom(32), _wrapping_data(organization_id))


def seal(organization_id: str, plaintext: bytes, associated_data: str) -> bytes:
    """Sealed under the organization's data key. ``associated_data`` names the place it may be opened in."""
    return sealing.seal(_data_key(organization_id), plaintext, _bound(organization_id, associated_data))


def unseal(organization_id: str, sealed: bytes, associated_data: str) -> bytes:
    """The plaintext. Raises sealing.CannotOpen when the sealed bytes were moved or changed."""
    return sealing.unseal(_data_key(organization_id), sealed, _bound(organization_id, associated_data))


def derive(label: str) -> bytes:
    """The instance's 256-bit subkey for one purpose: ``cursors``, ``refresh-token-tag`` …"""
    config = current()
    return _derived(config.secret_key, label)


def forget(organization_id: str) -> None:
    """The organization's data key is no longer held in this process."""
    _data_keys.pop((_master_key(), organization_id), None)


@functools.lru_cache(maxsize=64)
def _derived(key: bytes, label: str) -> bytes:
    return sealing.derive(key, f"gatehouse {label}")


def _data_key(organization_id: str) -> bytes:
    cached = _data_keys.get((_master_key(), organization_id))
    if cached is None:
        cached = sealing.unseal(_master_key(), _wrapped(organization_id), _wrapping_data(organization_id))
        if len(_data_keys) > 10_000:
            _data_keys.clear()
        _data_keys[_master_key(), organization_id] = cached
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


def _wrapping_data(organization_id: str) -> bytes:
    return f"data-key|1|{organization_id}".encode()


def _bound(organization_id: str, associated_data: str) -> bytes:
    return f"1|{organization_id}|{associated_data}".encode()
