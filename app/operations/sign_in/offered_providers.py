"""Identity providers that an organization offers on its sign-in page."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select

from app.fast_path.cache import BoundedCache
from app.fast_path.cache_invalidation import CacheStamp
from app.fast_path.compiled_query import CompiledQuery
from app.models.identity_provider import IdentityProvider
from app.operations.directory.snapshots import OrganizationSnapshot
from app.rules.sign_in.identity_providers import ENABLED


class OfferedProvider(Struct, frozen=True):
    """An enabled provider as the sign-in page shows it."""

    id: UUID
    slug: str
    name: str


_FIND_OFFERED = CompiledQuery(
    select(IdentityProvider.id, IdentityProvider.slug, IdentityProvider.name)
    .where(
        IdentityProvider.organization_id == bindparam("organization_id"), IdentityProvider.status == ENABLED
    )
    .order_by(IdentityProvider.name, IdentityProvider.id)
)
_offered: BoundedCache[tuple[tuple[OfferedProvider, ...], CacheStamp]] = BoundedCache(5_000)


def list_offered_providers(organization: OrganizationSnapshot) -> tuple[OfferedProvider, ...]:
    """List the providers that users can sign in with, by name: none while the organization is suspended."""
    if not organization.is_active:
        return ()
    cached = _offered.get(organization.id)
    if cached is not None and cached[1].is_current:
        return cached[0]
    # Take the stamp before reading, so that a change during the read makes the cached value stale.
    seen = CacheStamp(organization.id)
    rows = _FIND_OFFERED.rows(organization_id=organization.id)
    found = tuple(OfferedProvider(row.id, row.slug, row.name) for row in rows)
    _offered.put(organization.id, value=(found, seen))
    return found


def forget_offered_providers(organization_id: str) -> None:
    """Make this process read the providers of the organization again."""
    _offered.remove(organization_id)
