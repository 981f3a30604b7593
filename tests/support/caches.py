"""Clear what this process keeps, as if another process had changed it or it had just started."""

from __future__ import annotations

from app.operations.audit import webhook_publishing
from app.operations.clients import client_authentication, client_usage
from app.operations.directory import lookups
from app.operations.maintenance import instance_overview
from app.operations.sign_in import offered_providers, provider_metadata


def clear_directory_cache() -> None:
    """Drop every cached organization and client."""
    lookups._organizations.clear()
    lookups._clients.clear()
    lookups._ids_by_slug.clear()


def forget_failures() -> None:
    """Reset the counters of failed client authentications."""
    client_authentication._failures.clear()


def clear_client_key_cache() -> None:
    """Drop the cached keys of clients."""
    client_authentication._cache.clear()


def clear_recorded_uses() -> None:
    """Forget which uses were recorded, so that the next one is written."""
    client_usage._recorded.clear()


def forget_busiest() -> None:
    """Drop the cached list of the busiest organizations."""
    instance_overview._busiest.clear()


def clear_cached_subscriptions() -> None:
    """Drop the cached subscriptions of webhooks."""
    webhook_publishing._cache.clear()


def clear_cached_providers() -> None:
    """Drop what is cached of identity providers."""
    offered_providers._offered.clear()
    provider_metadata._published.clear()
    provider_metadata._failed.clear()
