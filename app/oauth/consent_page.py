"""The consent pages of all flows: their variables, and what the user selected on them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Response, render_template, request

from app.operations.authorization import approval_requests, authorization_requests
from app.operations.authorization.consents import ConsentState, list_offered_expiries
from app.operations.directory.lookups import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.rules.actor import Actor
from app.rules.authorization.consents import (
    MAX_REASON_LENGTH,
    ConsentExpiry,
    find_offered_expiry,
    max_consent_seconds,
)
from app.rules.clients.redirect_uris import get_display_host
from app.rules.errors import InvalidInput, TooManyRequests
from app.rules.scopes import restrict_scopes
from app.web.branding import branding_of, logo_of
from app.web.forms import field_errors
from app.web.languages import translate


def consent_words(
    actor: Actor,
    client: ClientSnapshot,
    session: SessionRecord,
    scopes: tuple[str, ...],
    standing: ConsentState,
    requested_at: datetime,
) -> dict[str, Any]:
    """Return the variables of a consent page.

    ``standing`` is the state of an earlier consent, ``requested_at`` the time of the app's request.
    """
    optional = client.document.get("optional_scopes") or ()
    organization = client.organization
    return {
        "client": client_words(client),
        "organization": {"name": organization.name, "slug": organization.slug},
        **branding_of(organization),
        "user": {"email": session.user_email, "name": session.user_name},
        "scopes": [
            {
                "name": scope.name,
                "title": translate(scope.title or "") if scope.is_identity else scope.title,
                "description": translate(scope.description or "") if scope.is_identity else scope.description,
                "api": scope.resource_name,
                "is_identity": scope.is_identity,
                "required": scope.name not in optional,
                "already_allowed": scope.name in standing.scopes,
            }
            for scope in authorization_requests.describe_scopes(actor, scopes)
        ],
        "refresh_days": organization.settings["oauth"]["refresh_token"]["ttl_seconds"] // 86400,
        "ends": list_offered_expiries(client, requested_at),
        "longest_seconds": max_consent_seconds(organization.settings),
        "changes": standing.changes,
        "was_called": (standing.shown or {}).get("name"),
        "given_at": standing.given_at,
    }


def send_request(actor: Actor, client: ClientSnapshot, scopes: tuple[str, ...]) -> str | None:
    """Send the member's request to the administrators; return an error message, or None on success."""
    try:
        approval_requests.create_client_request(actor, client, scopes, request.form.get("reason", ""))
    except InvalidInput as refused:
        return field_errors(refused).get("reason", refused.description)
    except TooManyRequests as refused:
        return refused.description
    return None


def asking_words(
    actor: Actor, client: ClientSnapshot, session: SessionRecord, *, sent: bool, error: str | None
) -> dict[str, Any]:
    """Return the variables of the page for requesting administrator approval, before and after it was sent."""
    organization = client.organization
    return {
        "client": client_words(client),
        "organization": {"name": organization.name, "slug": organization.slug},
        **branding_of(organization),
        "user": {"email": session.user_email},
        "waiting": approval_requests.find_pending_request(actor, client),
        "sent": sent,
        "reason": request.form.get("reason", ""),
        "errors": {"reason": error} if error else {},
        "longest_reason": MAX_REASON_LENGTH,
    }


def account_page(client: ClientSnapshot, session: SessionRecord, token: str) -> Response:
    """Return the account selection page; ``token`` identifies the authorization request."""
    organization = client.organization
    page = render_template(
        "oauth/select_account.html",
        client=client_words(client),
        organization={"name": organization.name, "slug": organization.slug},
        **branding_of(organization),
        user={"id": session.user_public_id, "email": session.user_email, "name": session.user_name},
        request_token=token,
    )
    return Response(page)


def client_words(client: ClientSnapshot) -> dict[str, Any]:
    """Return what pages show about a client."""
    return {
        "name": client.name,
        "logo": logo_of(client),
        "client_id": client.client_id,
        "client_uri": client.document.get("client_uri"),
        "policy_uri": client.document.get("policy_uri"),
        "tos_uri": client.document.get("tos_uri"),
        "trust": client.trust,
        "type": client.type,
        "created_by": client.created_by,
        "created_at": client.created_at,
        "is_unreviewed": client.is_unreviewed,
        "document_host": get_display_host(client.metadata_document_uri)
        if client.metadata_document_uri
        else None,
    }


def chosen_scopes(client: ClientSnapshot, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes that the user selected; only those that the client declares optional can be left out."""
    optional = client.document.get("optional_scopes") or ()
    selected = request.form.getlist("scope")
    return restrict_scopes(asked, [scope for scope in asked if scope not in optional or scope in selected])


def chosen_end(client: ClientSnapshot, requested_at: datetime) -> ConsentExpiry | None:
    """Return the expiry that the user selected, or None if it is not offered any more."""
    return find_offered_expiry(request.form.get("lasts", ""), list_offered_expiries(client, requested_at))
