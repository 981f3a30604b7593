"""Sealing: AES-256-GCM with associated data, so that sealed bytes can be unsealed only in the place they belong to."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_VERSION = b"\x01"
_NONCE_LENGTH = 12


class UnsealError(Exception):
    """The key, the associated data and the sealed bytes do not belong together."""


def seal(key: bytes, plaintext: bytes, associated_data: bytes) -> bytes:
    """Return version, 96-bit random nonce, ciphertext and tag. ``key`` has 32 bytes."""
    nonce = os.urandom(_NONCE_LENGTH)
    return _VERSION + nonce + AESGCM(key).encrypt(nonce, plaintext, associated_data)


def unseal(key: bytes, sealed: bytes, associated_data: bytes) -> bytes:
    """Return the plaintext. Raises UnsealError if the bytes were changed or moved."""
    if sealed[:1] != _VERSION or len(sealed) <= 1 + _NONCE_LENGTH:
        raise UnsealError
    try:
        return AESGCM(key).decrypt(
            sealed[1 : 1 + _NONCE_LENGTH], sealed[1 + _NONCE_LENGTH :], associated_data
        )
    except InvalidTag as error:
        raise UnsealError from error


def wrap_data_key(master_key: bytes, organization_id: str, data_key: bytes) -> bytes:
    """Seal an organization's data key with the master key."""
    return seal(master_key, data_key, f"data-key|1|{organization_id}".encode())


def unwrap_data_key(master_key: bytes, organization_id: str, wrapped: bytes) -> bytes:
    """Return the data key. Raises UnsealError if another master key wrapped it, or for another organization."""
    return unseal(master_key, wrapped, f"data-key|1|{organization_id}".encode())


def derive(key: bytes, label: str) -> bytes:
    """Derive a 256-bit subkey for one purpose, named by ``label`` (HKDF-SHA-256, RFC 5869)."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=label.encode()).derive(key)
