"""Tokens: a client's grants and access tokens, and bulk revocation with its receipts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import request
from wtforms import BooleanField, HiddenField, StringField, SubmitField
from wtforms.widgets import DateTimeLocalInput

from app.operations.audit.audit_events import find_names
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import get_client
from app.operations.grants.grant_lists import get_grant, list_grants, revoke_grant
from app.operations.tokens.bulk_revocation import BulkRevocation, bulk_revoke
from app.operations.tokens.revocation import get_receipt, list_affected_clients, list_receipts
from app.operations.tokens.token_lists import get_token, list_tokens, revoke_listed_token
from app.portal.clients import client_page
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.rules.errors import InvalidInput
from app.rules.tokens.revocation import CLIENT, CREDENTIAL, GRANT, ORGANIZATION, SESSION, USER, WITH_SESSIONS
from app.web.forms import PageForm, plain_text_field
from app.web.languages import counted, gettext, lazy_gettext, page_time_zone

# What a bulk revocation is about: its name, and the question of the preview.
_KINDS = {
    CLIENT: (lazy_gettext("Client"), lazy_gettext("Revoke all tokens of this client?")),
    CREDENTIAL: (lazy_gettext("Secret"), lazy_gettext("Revoke all tokens of this secret?")),
    GRANT: (lazy_gettext("Grant"), lazy_gettext("Revoke all tokens of this grant?")),
    ORGANIZATION: (lazy_gettext("Everything"), ""),
    SESSION: (lazy_gettext("Session"), lazy_gettext("Revoke all tokens of this session?")),
    USER: (lazy_gettext("User"), lazy_gettext("Revoke all tokens of this user?")),
}
_SELECTORS = ("client_id", "credential_id", "user_id")


class BulkRevocationForm(PageForm):
    """Revokes many tokens at once: of a client, a secret, a user, or the whole organization."""

    client_id = HiddenField()
    credential_id = HiddenField()
    user_id = HiddenField()
    issued_before = StringField(
        # The view sets the label, which names the time zone.
        "",
        widget=DateTimeLocalInput(),
        description=lazy_gettext(
            "Leave empty to use the current time. An earlier time revokes only tokens issued before it."
        ),
        render_kw={"step": "1"},
    )
    include_sessions = BooleanField()
    reason = plain_text_field(
        lazy_gettext("Reason"),
        max_length=500,
        description=lazy_gettext("Saved in the receipt and the audit log."),
    )
    revoke = SubmitField(lazy_gettext("Revoke tokens"))
    count = SubmitField(lazy_gettext("Update preview"))

    def selection(self) -> dict[str, Any]:
        """Return what the revocation is about; everything when nothing is selected."""
        chosen = {name: self[name].data for name in _SELECTORS if self[name].data}
        return chosen or {"all": True}

    def order(self) -> dict[str, Any]:
        """Return the whole order as the operation takes it."""
        order = self.selection() | {
            "issued_before": _in_page_zone(self.issued_before.data) if self.issued_before.data else None,
            "reason": self.reason.data or None,
        }
        if not self.client_id.data and not self.credential_id.data:
            order["include_sessions"] = self.include_sessions.data
        return order


@portal_page("/clients/<client_id>/tokens", "GET")
def client_tokens(context: PortalContext, client_id: str) -> PageResponse:
    """List the active grants of one client."""
    client = get_client(context.actor, client_id)
    context.actor.require("tokens:read", owner_id=client.owner_id)
    page = list_grants(context.actor, context.page_request(), filters={"client_id": client.client_id})
    return client_page(
        context,
        client,
        "tokens",
        page=page,
        may_revoke=context.actor.has_permission("tokens:revoke", owner_id=client.owner_id),
    )


@portal_page("/clients/<client_id>/tokens/<grant_id>/revoke", "GET", "POST")
def revoke_client_grant(context: PortalContext, client_id: str, grant_id: str) -> PageResponse:
    """Confirm and revoke a grant; its user has to sign in to the client again."""
    client = get_client(context.actor, client_id)
    context.actor.require("tokens:revoke", owner_id=client.owner_id)
    form, page = PageForm(), f"/clients/{client.client_id}/tokens"
    if form.validate_on_submit():
        revoke_grant(context.actor, grant_id, client_id=client.client_id)
        return context.done(page, "grant-revoked")
    grant = get_grant(context.actor, grant_id)
    impact = (
        (
            gettext(
                "%(name)s loses its access to the account of %(user_email)s: %(scopes)s (%(names)s).",
                name=client.name,
                user_email=grant.user_email,
                scopes=counted(len(grant.scopes), "scope"),
                names=", ".join(grant.scopes[:10]),
            )
        ),
        gettext("Its access tokens, and its refresh token if it has one, stop working immediately."),
        gettext("The user has to sign in to the client again. Their consent stays."),
    )
    return context.confirm(
        form,
        Confirmation(
            gettext("Revoke this grant?"),
            gettext("Revoke grant"),
            _parents(client, gettext("Grants"), page),
            impact,
        ),
    )


@portal_page("/clients/<client_id>/tokens/access", "GET")
def client_access_tokens(context: PortalContext, client_id: str) -> PageResponse:
    """List the active access tokens of one client, including those without a user."""
    client = get_client(context.actor, client_id)
    context.actor.require("tokens:read", owner_id=client.owner_id)
    page = list_tokens(context.actor, context.page_request(), filters={"client_id": client.client_id})
    return client_page(
        context,
        client,
        "tokens/access",
        template="access_tokens",
        page=page,
        may_revoke=context.actor.has_permission("tokens:revoke", owner_id=client.owner_id),
    )


@portal_page("/clients/<client_id>/tokens/access/<access_token_id>/revoke", "GET", "POST")
def revoke_client_token(context: PortalContext, client_id: str, access_token_id: str) -> PageResponse:
    """Confirm and revoke one access token; its grant stays."""
    client = get_client(context.actor, client_id)
    context.actor.require("tokens:revoke", owner_id=client.owner_id)
    form, page = PageForm(), f"/clients/{client.client_id}/tokens/access"
    if form.validate_on_submit():
        revoke_listed_token(context.actor, access_token_id, client_id=client.client_id)
        return context.done(page, "token-revoked")
    token = get_token(context.actor, access_token_id)
    impact = (
        (
            gettext(
                "APIs reject the token of %(email)s and the tokens that were exchanged for it.",
                email=token.user_email,
            )
            if token.user_email
            else gettext("APIs reject the token and the tokens that were exchanged for it.")
        ),
        gettext("The grant stays: a client with a refresh token can get a new access token.")
        if token.grant_id
        else gettext("The client can get a new token with its own credentials."),
    )
    parents = _parents(client, gettext("Access tokens"), page)
    return context.confirm(
        form,
        Confirmation(gettext("Revoke this access token?"), gettext("Revoke access token"), parents, impact),
    )


def _parents(client: ClientRecord, label: str, page: str) -> tuple[tuple[str, str], ...]:
    return (gettext("Clients"), "/clients"), (client.name, f"/clients/{client.client_id}"), (label, page)


@portal_page("/revocations", "GET")
def revocations(context: PortalContext) -> PageResponse:
    """List the receipts of bulk revocations, newest first."""
    page = list_receipts(context.actor, context.organization.slug, context.page_request())
    return context.render(
        "portal/revocations/list.html",
        page=page,
        names=find_names(context.actor, [receipt.subject for receipt in page.items]),
        kinds=_KINDS,
        may_revoke=context.actor.has_permission("tokens:revoke"),
    )


@portal_page("/revocations/<revocation_id>", "GET")
def revocation(context: PortalContext, revocation_id: str) -> PageResponse:
    """Show one receipt."""
    receipt = get_receipt(context.actor, context.organization.slug, revocation_id)
    names = find_names(context.actor, [receipt.subject])
    clients = (
        list_affected_clients(context.actor, context.organization.slug, receipt)
        if context.actor.has_permission("clients:read")
        else []
    )
    return context.render(
        "portal/revocations/receipt.html", receipt=receipt, names=names, kinds=_KINDS, clients=clients
    )


@portal_page("/revocations/new", "GET", "POST")
def new_revocation(context: PortalContext) -> PageResponse:
    """Preview how many tokens would be revoked, and revoke them."""
    form = BulkRevocationForm(**{name: request.args.get(name, "") for name in _SELECTORS})
    selection = form.selection()
    try:
        # The first preview has the default for sessions: a user is signed out, an organization is not.
        order = form.order() if form.validate_on_submit() else selection
        if order is not selection and form.revoke.data:
            done = bulk_revoke(context.actor, context.organization.slug, order)
            return context.done(f"/revocations/{done.receipt.public_id}", "tokens-revoked")
        preview = _preview(context, order)
    except InvalidInput as error:
        form.add_errors(error)
        preview = _preview(context, selection)
    form.issued_before.label.text = gettext("Issued before (%(zone)s)", zone=page_time_zone())
    receipt = preview.receipt
    is_everything = receipt.kind == ORGANIZATION
    form.include_sessions.data = receipt.sessions
    form.include_sessions.label.text = (
        gettext("Also sign out everyone") if is_everything else gettext("Also sign out this user")
    )
    form.include_sessions.description = gettext("This includes you.") if is_everything else ""
    return context.render(
        "portal/revocations/new.html",
        form=form,
        preview=receipt,
        names=find_names(context.actor, [receipt.subject]),
        warnings=preview.warnings,
        offers_sessions=receipt.kind in WITH_SESSIONS,
        is_everything=is_everything,
        question=_KINDS[receipt.kind][1],
        back=_back_url(context, selection),
    )


def _in_page_zone(local: str) -> str:
    """Return a time without an offset with that of the zone in which pages show times.

    In an hour that clocks repeat, it is the later time, with which more tokens are revoked.
    """
    try:
        time = datetime.fromisoformat(local)
    except ValueError:
        return local
    return time.replace(tzinfo=time.tzinfo or page_time_zone(), fold=1).isoformat()


def _preview(context: PortalContext, order: dict[str, Any]) -> BulkRevocation:
    return bulk_revoke(context.actor, context.organization.slug, {**order, "dry_run": True})


def _back_url(context: PortalContext, selection: dict[str, Any]) -> str:
    if "client_id" in selection:
        return context.url(f"/clients/{selection['client_id']}/tokens")
    return context.url(f"/users/{selection['user_id']}" if "user_id" in selection else "/revocations")
