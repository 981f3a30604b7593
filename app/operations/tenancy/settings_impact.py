"""Impact of settings before they are stored: whom and what a change would touch, counted and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, or_, select

from app.extensions import db
from app.models import client as client_model
from app.models.client import Client
from app.models.credential import Credential
from app.models.session import Session
from app.operations import clock
from app.operations.second_factors.administration import count_without_factor
from app.rules.registration.demands import requires
from app.rules.tenancy.settings import value_at

SECRET_DISPLAY = "oauth.clients.secret_display"
_SESSIONS = "authentication.sessions."
# What a registration can stand within or outside of, or does already; every other setting under oauth touches all
# clients.
_NARROWING = frozenset(
    {
        "oauth.grant_types",
        "oauth.clients.token_endpoint_auth_methods",
        "oauth.redirect_uris.allowed_hosts",
        "oauth.redirect_uris.max_per_client",
        "oauth.require_par",
        "oauth.require_dpop",
    }
)
# Registrations are documents that the database cannot search, so at most so many are read.
MOST_CLIENTS = 5000


@dataclass(frozen=True, slots=True)
class Impact:
    """What would follow from a change."""

    users_without_second_factor: int
    sessions_ending: int
    clients_affected: int
    secrets_wiped: int = 0


def impact_of(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], changed: Iterable[str]
) -> Impact:
    """The impact of the change between two effective documents, whose ``changed`` paths are given."""
    paths = frozenset(changed)
    return Impact(
        users_without_second_factor=_users(organization_id, after)
        if "authentication.mfa.policy" in paths
        else 0,
        sessions_ending=_sessions(organization_id, after)
        if any(path.startswith(_SESSIONS) for path in paths)
        else 0,
        clients_affected=_clients(
            organization_id, before, after, {path for path in paths if path.startswith("oauth.")}
        ),
        secrets_wiped=_secrets(organization_id, after) if SECRET_DISPLAY in paths else 0,
    )


def _users(organization_id: str, after: Mapping[str, Any]) -> int:
    policy = value_at(after, "authentication.mfa.policy")
    if policy not in {"required", "required_for_admins"}:
        return 0
    return count_without_factor(organization_id, admins_alone=policy == "required_for_admins")


def _secrets(organization_id: str, after: Mapping[str, Any]) -> int:
    """Sealed copies that nobody could view any more."""
    if value_at(after, SECRET_DISPLAY) != "once":
        return 0
    sealed = (Credential.organization_id == organization_id, Credential.sealed.is_not(None))
    return db.session.scalar(select(func.count()).select_from(Credential).where(*sealed)) or 0


def _sessions(organization_id: str, after: Mapping[str, Any]) -> int:
    now = clock.now()
    idle = timedelta(seconds=value_at(after, f"{_SESSIONS}idle_timeout_seconds"))
    absolute = timedelta(seconds=value_at(after, f"{_SESSIONS}absolute_timeout_seconds"))
    return (
        db.session.scalar(
            select(func.count()).where(
                Session.organization_id == organization_id,
                Session.revoked_at.is_(None),
                Session.expires_at > now,
                or_(Session.last_seen_at < now - idle, Session.created_at < now - absolute),
            )
        )
        or 0
    )


def _clients(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], paths: set[str]
) -> int:
    if not paths:
        return 0
    own = (Client.organization_id == organization_id, Client.status == client_model.ACTIVE)
    if paths - _NARROWING:
        return db.session.scalar(select(func.count()).where(*own)) or 0
    documents = db.session.scalars(select(Client.document).where(*own).limit(MOST_CLIENTS))
    return sum(
        (_may(document, before) and not _may(document, after)) or _must_more(document, before, after)
        for document in documents
    )


def _may(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a client with this registration is within the settings."""
    uris = document.get("redirect_uris") or ()
    hosts = value_at(settings, "oauth.redirect_uris.allowed_hosts")
    return (
        set(document.get("grant_types") or ()) <= set(value_at(settings, "oauth.grant_types"))
        and document.get("token_endpoint_auth_method", "none")
        in value_at(settings, "oauth.clients.token_endpoint_auth_methods")
        and len(uris) <= value_at(settings, "oauth.redirect_uris.max_per_client")
        and (not hosts or all(_is_host_allowed(uri, hosts) for uri in uris))
    )


def _must_more(document: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a client with this registration would have to push its requests or bind its tokens, and need not now."""
    now, then = requires(document, before), requires(document, after)
    pushes = "authorization_code" in (document.get("grant_types") or ())
    return (pushes and then.pushed_requests and not now.pushed_requests) or (then.dpop and not now.dpop)


def _is_host_allowed(uri: str, hosts: Iterable[str]) -> bool:
    host = urlsplit(uri).hostname or ""
    return any(
        host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])) for allowed in hosts
    )
