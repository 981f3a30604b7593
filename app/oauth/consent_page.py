"""What the pages before a consent say, whichever flow leads to them, and what was ticked on them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Response, render_template, request

from app.operations.authorization import approval_requests, authorization_requests
from app.operations.authorization.consents import Standing, offered_ends
from app.operations.directory.lookups import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.rules.actor import Actor
from app.rules.authorization.consents import LONGEST_REASON, End, end_chosen, longest_life
from app.rules.clients.redirect_uris import get_display_host
from app.rules.errors import InvalidInput, TooManyRequests
from app.rules.scopes import restrict_scopes
from app.web.branding import branding_of, logo_of
from app.web.forms import field_errors
from app.web.languages import in_page_language


def consent_words(
    actor: Actor,
    client: ClientSnapshot,
    session: SessionRecord,
    scopes: tuple[str, ...],
    standing: Standing,
    asked_at: datetime,
) -> dict[str, Any]:
    """The variables of a consent page.

    ``standing`` is what an earlier consent says, ``asked_at`` when the app asked.
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
                "title": in_page_language(scope.title or "") if scope.is_identity else scope.title,
                "description": in_page_language(scope.description or "")
                if scope.is_identity
                else scope.description,
                "api": scope.resource_name,
                "is_identity": scope.is_identity,
                "required": scope.name not in optional,
                "already_allowed": scope.name in standing.scopes,
            }
            for scope in authorization_requests.words_for(actor, scopes)
        ],
        "refresh_days": organization.settings["oauth"]["refresh_token"]["ttl_seconds"] // 86400,
        "ends": offered_ends(client, asked_at),
        "longest_seconds": longest_life(organization.settings),
        "changes": standing.changes,
        "was_called": (standing.shown or {}).get("name"),
        "given_at": standing.given_at,
    }


def send_request(actor: Actor, client: ClientSnapshot, scopes: tuple[str, ...]) -> str | None:
    """The member's request is with the administrators; otherwise what has to be put right first."""
    try:
        approval_requests.ask_for_client(actor, client, scopes, request.form.get("reason", ""))
    except InvalidInput as refused:
        return field_errors(refused).get("reason", refused.description)
    except TooManyRequests as refused:
        return refused.description
    return None


def asking_words(
    actor: Actor, client: ClientSnapshot, session: SessionRecord, *, sent: bool, error: str | None
) -> dict[str, Any]:
    """The variables of the page that sends a person to the administrators, before and after."""
    organization = client.organization
    return {
        "client": client_words(client),
        "organization": {"name": organization.name, "slug": organization.slug},
        **branding_of(organization),
        "user": {"email": session.user_email},
        "waiting": approval_requests.find_asked(actor, client),
        "sent": sent,
        "reason": request.form.get("reason", ""),
        "errors": {"reason": error} if error else {},
        "longest_reason": LONGEST_REASON,
    }


def account_page(client: ClientSnapshot, session: SessionRecord, token: str) -> Response:
    """The chooser of accounts; ``token`` is the authorization request under way."""
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
    """What pages say of a client."""
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
    """What the person ticked: only scopes that the client calls optional can be left out."""
    optional = client.document.get("optional_scopes") or ()
    ticked = request.form.getlist("scope")
    return restrict_scopes(asked, [scope for scope in asked if scope not in optional or scope in ticked])


def chosen_end(client: ClientSnapshot, asked_at: datetime) -> End | None:
    """The end that the person chose; None when it is not, or no longer, one of those offered."""
    return end_chosen(request.form.get("lasts", ""), offered_ends(client, asked_at))
