"""Members' requests for clients that need administrator approval: the queue, and the decisions."""

from __future__ import annotations

from flask import request
from wtforms import BooleanField, TextAreaField
from wtforms.validators import Length

from app.operations.authorization.approval_requests import (
    ClientRequestRecord,
    approve_client_request,
    decline_client_request,
    get_client_request,
    list_client_requests,
)
from app.operations.clients.scopes import list_scopes
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.labels import REQUEST_STATUSES, TRUST_LEVELS
from app.rules.authorization.consents import MAX_REASON_LENGTH
from app.rules.errors import Conflict, InvalidInput
from app.rules.scopes import IDENTITY_SCOPES
from app.web.forms import PageForm, VersionField
from app.web.languages import gettext, lazy_gettext, translate


class ApproveRequestForm(PageForm):
    """Approves a client for all members."""

    version = VersionField()
    verified = BooleanField(lazy_gettext("Mark as reviewed"))


class DeclineRequestForm(PageForm):
    """Declines a request, with a message for the member."""

    message = TextAreaField(lazy_gettext("Message"), [Length(max=MAX_REASON_LENGTH)], render_kw={"rows": 3})


@portal_page("/client-requests", "GET")
def client_requests(context: PortalContext) -> PageResponse:
    """List the open requests, or with ``?status=`` the approved or declined ones."""
    requested = request.args.get("status", "open")
    status = requested if requested in REQUEST_STATUSES else "open"
    page = list_client_requests(context.actor, context.page_request(), filters={"status": status})
    return context.render(
        "portal/client_requests/list.html",
        page=page,
        current_status=status,
        statuses=REQUEST_STATUSES,
        scope_titles=_scope_titles(context),
        trust_levels=TRUST_LEVELS,
        setting=context.organization.settings["oauth"]["consent"]["members_may_allow"],
    )


@portal_page("/client-requests/<request_id>/approve", "GET", "POST")
def approve_request(context: PortalContext, request_id: str) -> PageResponse:
    """Confirm and approve a client, so that members can allow it."""
    record = get_client_request(context.actor, request_id)
    context.actor.require("clients:trust")
    form = ApproveRequestForm(version=record.client_version)
    form.verified.description = gettext(
        "Users see “Reviewed by %(name)s”. Changing this later requires the permission clients:trust.",
        name=context.organization.name,
    )
    if form.validate_on_submit():
        with form.show_errors(Conflict):
            decision = {"verified": form.verified.data, "client_version": form.version.data}
            approve_client_request(context.actor, request_id, decision)
            return context.done("/client-requests", "client-request-approved")
        form.version.data = record.client_version
    return _page(context, "approve", record, form)


@portal_page("/client-requests/<request_id>/decline", "GET", "POST")
def decline_request(context: PortalContext, request_id: str) -> PageResponse:
    """Decline a request with a message for the member."""
    record = get_client_request(context.actor, request_id)
    context.actor.require("clients:trust")
    form = DeclineRequestForm()
    form.message.description = gettext("Optional. %(user_email)s sees it.", user_email=record.user_email)
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            decline_client_request(context.actor, request_id, {"message": form.message.data or None})
            return context.done("/client-requests", "client-request-declined")
    return _page(context, "decline", record, form)


def _page(context: PortalContext, name: str, record: ClientRequestRecord, form: PageForm) -> PageResponse:
    return context.render(
        f"portal/client_requests/{name}.html",
        form=form,
        record=record,
        scope_titles=_scope_titles(context),
        trust_levels=TRUST_LEVELS,
    )


def _scope_titles(context: PortalContext) -> dict[str, str]:
    """Return the title of each scope; only those of built-in scopes are translated."""
    titles = {scope.name: scope.title or scope.name for scope in list_scopes(context.actor)}
    return titles | {name: translate(titles[name]) for name in IDENTITY_SCOPES if name in titles}
