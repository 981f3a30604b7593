"""Signing keys at work: the one that signs now, made at its first use, and those whose signatures may be checked."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

from joserfc.jws import JWSRegistry
from sqlalchemy import select

from app.extensions import db
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations.bounded import Kept
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import key_rotation
from app.operations.store import clock, keyring
from app.operations.store.transactions import on_commit_or_now, read
from app.rules.actor import Actor
from app.rules.tokens.claims import compact

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
_CACHED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SigningKeyView:
    """A key that signs."""

    kid: str
    algorithm: str
    key: key_rotation.AnyKey


_cache: Kept[tuple[float, SigningKeyView]] = Kept(5_000)


def active_key(organization: OrganizationSnapshot, algorithm: str) -> SigningKeyView:
    """The key that signs now; made, stored and published when there is none yet (KY-1, KY-2).

    Cached by the organization's version, which each rotation raises.
    """
    what = (keyring.derive_instance_key("signing-key-cache"), organization.version, algorithm)
    cached = _cache.get(organization.id, *what)
    if cached is not None and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return cached[1]
    view = _load(organization.id, algorithm)
    if view is not None:
        _cache.put(organization.id, *what, value=(time.monotonic(), view))
        return view
    key_rotation.stand(Actor.system(organization.id), algorithm, key_model.ACTIVE)
    view = _load(organization.id, algorithm)
    if view is None:
        raise RuntimeError("a signing key that was just stored is not there")
    made = view
    # Rolled back with the unit that made it, the key would go on signing from here and be published nowhere.
    on_commit_or_now(lambda: _cache.put(organization.id, *what, value=(time.monotonic(), made)))
    return view


def sign(
    organization: OrganizationSnapshot, algorithm: str, claims: dict[str, Any], *, token_type: str
) -> str:
    """The claims as a signed JWT of the organization (RFC 7519); ``token_type`` is the header's ``typ``."""
    view = active_key(organization, algorithm)
    header = compact({"alg": algorithm, "kid": view.kid, "typ": token_type})
    signed = urlsafe_b64encode(header).rstrip(b"=") + b"." + urlsafe_b64encode(compact(claims)).rstrip(b"=")
    # joserfc's own serializer warns of EdDSA at each signature and costs more than an ES256 signature does.
    signature = JWSRegistry.algorithms[algorithm].sign(signed, view.key)
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def published_keys(organization: OrganizationSnapshot) -> list[dict[str, Any]]:
    """As ``public_keys``; of an active organization, a key for its default algorithm stands after the first look."""
    if organization.is_active:
        active_key(organization, organization.settings["oauth"]["signing"]["algorithm"])
    return public_keys(organization.id)


@read
def public_keys(organization_id: str) -> list[dict[str, Any]]:
    """The public half of every key whose signatures may still be checked (RFC 7517)."""
    rows = db.session.scalars(
        select(SigningKey)
        .where(SigningKey.organization_id == organization_id)
        .order_by(SigningKey.id.desc())
        .limit(50)
    )
    now = clock.now()
    return [row.public_jwk for row in rows if row.remove_at is None or row.remove_at > now]


@read
def _load(organization_id: str, algorithm: str) -> SigningKeyView | None:
    row = key_rotation.find_in_slot(organization_id, algorithm, key_model.ACTIVE)
    return None if row is None else SigningKeyView(row.kid, algorithm, key_rotation.opened(row))
