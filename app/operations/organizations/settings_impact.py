"""The impact of a change of an organization's settings on its users, sessions, clients and secrets, for a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from sqlalchemy import or_, select

from app.extensions import db
from app.models.client import ACTIVE, Client, Credential
from app.models.session import Session
from app.operations.store import clock
from app.operations.store.rows import count_rows, count_where
from app.operations.users.factor_resets import count_users_without_factor
from app.rules.clients.client_coherence import (
    CODE_PROTECTIONS,
    required_code_protection,
    requires_dpop,
    requires_par,
)
from app.rules.organizations.settings import value_at

SECRET_DISPLAY = "oauth.clients.secret_display"
SESSIONS = "authentication.sessions."
# Settings that a client registration may or may not satisfy. Every other setting under oauth affects all clients.
_CLIENT_CONSTRAINTS = frozenset(
    {
        "oauth.grant_types",
        "oauth.clients.token_endpoint_auth_methods",
        "oauth.redirect_uris.allowed_hosts",
        "oauth.redirect_uris.max_per_client",
        "oauth.pkce",
        "oauth.require_par",
        "oauth.require_dpop",
    }
)
# The database cannot search registrations, which are documents, so the number of those read is bounded.
MAX_CLIENTS_CHECKED = 5000


class SettingsImpact(Struct, frozen=True):
    """The users, clients and sessions that a change would affect."""

    users_without_second_factor: int
    sessions_ending: int
    clients_affected: int
    secrets_wiped: int = 0


def calculate_impact(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], changed: Iterable[str]
) -> SettingsImpact:
    """Calculate the impact of a change between two effective documents, whose ``changed`` paths are given."""
    paths = frozenset(changed)
    return SettingsImpact(
        users_without_second_factor=_count_users(organization_id, after)
        if "authentication.mfa.policy" in paths
        else 0,
        sessions_ending=_count_sessions(organization_id, after)
        if any(path.startswith(SESSIONS) for path in paths)
        else 0,
        clients_affected=_count_clients(
            organization_id, before, after, {path for path in paths if path.startswith("oauth.")}
        ),
        secrets_wiped=_count_sealed_secrets(organization_id, after) if SECRET_DISPLAY in paths else 0,
    )


def _count_users(organization_id: str, after: Mapping[str, Any]) -> int:
    policy = value_at(after, "authentication.mfa.policy")
    if policy not in {"required", "required_for_admins"}:
        return 0
    return count_users_without_factor(organization_id, admins_only=policy == "required_for_admins")


def _count_sealed_secrets(organization_id: str, after: Mapping[str, Any]) -> int:
    """Count the sealed copies of secrets that could no longer be viewed."""
    if value_at(after, SECRET_DISPLAY) != "once":
        return 0
    sealed = (Credential.organization_id == organization_id) & Credential.sealed.is_not(None)
    return count_rows(select(Credential.id).where(sealed))


def _count_sessions(organization_id: str, after: Mapping[str, Any]) -> int:
    now = clock.now()
    idle = timedelta(seconds=value_at(after, f"{SESSIONS}idle_timeout_seconds"))
    absolute = timedelta(seconds=value_at(after, f"{SESSIONS}absolute_timeout_seconds"))
    return count_where(
        Session.organization_id == organization_id,
        Session.revoked_at.is_(None),
        Session.expires_at > now,
        or_(Session.last_seen_at < now - idle, Session.created_at < now - absolute),
    )


def _count_clients(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], paths: set[str]
) -> int:
    if not paths:
        return 0
    own = (Client.organization_id == organization_id, Client.status == ACTIVE)
    if paths - _CLIENT_CONSTRAINTS:
        return count_where(*own)
    rows = db.session.execute(select(Client.document, Client.source).where(*own).limit(MAX_CLIENTS_CHECKED))
    return sum(
        (_satisfies(document, before) and not _satisfies(document, after))
        or _has_new_requirements(document, source, before, after)
        for document, source in rows
    )


def _satisfies(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a client with this registration satisfies the settings."""
    uris = document.get("redirect_uris") or ()
    hosts = value_at(settings, "oauth.redirect_uris.allowed_hosts")
    return (
        set(document.get("grant_types") or ()) <= set(value_at(settings, "oauth.grant_types"))
        and document.get("token_endpoint_auth_method", "none")
        in value_at(settings, "oauth.clients.token_endpoint_auth_methods")
        and len(uris) <= value_at(settings, "oauth.redirect_uris.max_per_client")
        and (not hosts or all(_is_host_allowed(uri, hosts) for uri in uris))
    )


def _has_new_requirements(
    document: Mapping[str, Any], source: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> bool:
    """Return whether the client would newly have to use PKCE or a nonce, push its requests or bind its tokens."""
    rank_before, rank_after = (
        CODE_PROTECTIONS.index(required_code_protection(document, settings, source))
        for settings in (before, after)
    )
    must_push = requires_par(document, after) and not requires_par(document, before)
    uses_codes = "authorization_code" in (document.get("grant_types") or ())
    must_bind = requires_dpop(document, after) and not requires_dpop(document, before)
    return (uses_codes and (rank_after < rank_before or must_push)) or must_bind


def _is_host_allowed(uri: str, hosts: Iterable[str]) -> bool:
    host = urlsplit(uri).hostname or ""
    return any(
        host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])) for allowed in hosts
    )
