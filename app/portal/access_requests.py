"""Access of clients to APIs: requests of developers, the decisions about them, and the access of a client or an API."""

from __future__ import annotations

from flask import request
from wtforms import SelectChoice, StringField, TextAreaField
from wtforms.validators import InputRequired, Length

from app.operations.clients.access_decisions import (
    approve_access,
    decline_access,
    give_access,
    preview_withdrawal,
    withdraw_access,
)
from app.operations.clients.access_records import (
    AccessRecord,
    get_client_access,
    list_access_of_client,
    list_client_access,
)
from app.operations.clients.access_requests import (
    cancel_request,
    get_requestable_resource,
    list_requestable_resources,
    request_access,
)
from app.operations.clients.clients import get_client
from app.operations.clients.resources import ResourceRecord, get_resource
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.labels import ACCESS_POLICIES, ACCESS_STATUSES
from app.rules.clients.client_access import MAX_TEXT_LENGTH
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.web.forms import CODE, CheckboxListField, PageForm
from app.web.languages import gettext, lazy_gettext


class DecisionForm(PageForm):
    """A decision about a request or an access, with a message for the developer."""

    message = TextAreaField(lazy_gettext("Message"), [Length(max=MAX_TEXT_LENGTH)], render_kw={"rows": 3})


class RequestAccessForm(PageForm):
    """A developer's request for access to an API."""

    scopes = CheckboxListField(
        lazy_gettext("Scopes"), description=lazy_gettext("Request only what the client needs.")
    )
    reason = TextAreaField(
        lazy_gettext("Reason"),
        [InputRequired(), Length(max=MAX_TEXT_LENGTH)],
        description=lazy_gettext(
            "Say in one sentence why the client needs the access. The owner of the API reads it."
        ),
        render_kw={"rows": 3},
    )


class GiveAccessForm(PageForm):
    """Gives a client access to an API."""

    client_id = StringField(
        lazy_gettext("Client ID"),
        [InputRequired()],
        description=lazy_gettext("Begins with cli_."),
        render_kw={**CODE, "maxlength": 64},
    )
    scopes = CheckboxListField(
        lazy_gettext("Scopes"), description=lazy_gettext("Added to the scopes that the client already has.")
    )


@portal_page("/access-requests", "GET")
def access_requests(context: PortalContext) -> PageResponse:
    """List the pending requests, or with ``?status=`` the access that was given, declined or withdrawn."""
    wanted = request.args.get("status", "requested")
    status = wanted if wanted in ACCESS_STATUSES else "requested"
    page = list_client_access(context.actor, context.page_request(), filters={"status": status})
    return context.render(
        "portal/access_requests/list.html",
        page=page,
        current_status=status,
        statuses=ACCESS_STATUSES,
        may_decide=lambda record: context.actor.has_permission(
            "resources:write", owner_id=record.resource_owner_id
        ),
    )


@portal_page("/access-requests/<access_id>/approve", "GET", "POST")
def approve_access_request(context: PortalContext, access_id: str) -> PageResponse:
    """Confirm and approve a request for access."""
    return _decide(context, access_id, "approve")


@portal_page("/access-requests/<access_id>/decline", "GET", "POST")
def decline_access_request(context: PortalContext, access_id: str) -> PageResponse:
    """Decline a request for access."""
    return _decide(context, access_id, "decline")


@portal_page("/access-requests/<access_id>/withdraw", "GET", "POST")
def withdraw_client_access(context: PortalContext, access_id: str) -> PageResponse:
    """Show the impact, and withdraw the access of a client."""
    preview = preview_withdrawal(context.actor, access_id)
    return _decide(context, access_id, "withdraw", access_tokens=preview.access_tokens)


@portal_page("/apis/<api_id>/clients", "GET", "POST")
def api_clients(context: PortalContext, api_id: str) -> PageResponse:
    """List the clients with access to an API and the requests for it, and give a client access."""
    api = get_resource(context.actor, api_id)
    may_change = context.actor.has_permission("resources:write", owner_id=api.owner_id)
    form = GiveAccessForm()
    _offer_scopes(form, api)
    if form.is_submitted():
        context.actor.require("resources:write", owner_id=api.owner_id)
    if form.validate_on_submit():
        try:
            with form.show_errors(InvalidInput):
                give_access(context.actor, api_id, form.client_id.data or "", {"scopes": form.scopes.data})
                return context.done(f"/apis/{api_id}/clients", "access-given")
        except NotFound:
            form.add_error(
                gettext("There is no client with this ID. Copy it from the client’s page."), "client_id"
            )
    page = list_client_access(context.actor, context.page_request(), filters={"resource_id": api.public_id})
    return context.render(
        "portal/access_requests/api.html",
        form=form,
        api=api,
        page=page,
        statuses=ACCESS_STATUSES,
        policies=ACCESS_POLICIES,
        may_change=may_change,
    )


@portal_page("/clients/<client_id>/apis", "GET")
def client_apis(context: PortalContext, client_id: str) -> PageResponse:
    """List the APIs that a client has access to, its requests, and the APIs that can be requested."""
    client = get_client(context.actor, client_id)
    page = list_access_of_client(context.actor, client_id, context.page_request())
    may_request = context.actor.has_permission("clients:write", owner_id=client.owner_id)
    return client_page(
        context,
        client,
        "apis",
        page=page,
        statuses=ACCESS_STATUSES,
        policies=ACCESS_POLICIES,
        may_request=may_request,
        requestable=list_requestable_resources(context.actor, client_id) if may_request else [],
    )


@portal_page("/clients/<client_id>/apis/<api_id>", "GET", "POST")
def request_api_access(context: PortalContext, client_id: str, api_id: str) -> PageResponse:
    """Request access to an API for a client."""
    api = get_requestable_resource(context.actor, client_id, api_id)
    client = get_client(context.actor, client_id)
    form = RequestAccessForm()
    _offer_scopes(form, api)
    if not form.is_submitted():
        names = {scope.name for scope in api.scopes}
        form.scopes.data = [name for name in client.scopes if name in names]
    if form.validate_on_submit():
        wanted = {"scopes": form.scopes.data, "reason": form.reason.data}
        with form.show_errors(InvalidInput, Conflict):
            made = request_access(context.actor, client_id, api_id, wanted)
            notice = "access-given" if made.status == "granted" else "access-requested"
            return context.done(f"/clients/{client_id}/apis", notice)
    return context.render(
        "portal/access_requests/request.html",
        form=form,
        api=api,
        client=client,
        client_url=context.url(f"/clients/{client_id}"),
        decides_alone=context.actor.has_permission("resources:write", owner_id=api.owner_id),
    )


@portal_page("/clients/<client_id>/apis/<api_id>/cancel", "POST")
def cancel_access_request(context: PortalContext, client_id: str, api_id: str) -> PageResponse:
    """Cancel the pending request of a client."""
    cancel_request(context.actor, client_id, api_id)
    return context.done(f"/clients/{client_id}/apis", "access-request-cancelled")


_DECISIONS = {
    "approve": (approve_access, "access-given"),
    "decline": (decline_access, "access-declined"),
    "withdraw": (withdraw_access, "access-withdrawn"),
}


def _decide(
    context: PortalContext, access_id: str, name: str, *, access_tokens: int | None = None
) -> PageResponse:
    record: AccessRecord = get_client_access(context.actor, access_id)
    api = get_resource(context.actor, record.resource_id)
    context.actor.require("resources:write", owner_id=api.owner_id)
    form = DecisionForm()
    form.message.description = gettext("Optional. The developer of the client sees it.")
    operation, notice = _DECISIONS[name]
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            operation(context.actor, access_id, {"message": form.message.data or None})
            return context.done(f"/apis/{record.resource_id}/clients", notice)
    return context.render(
        "portal/access_requests/decide.html",
        form=form,
        record=record,
        decision=name,
        policy=api.access_policy,
        access_tokens=access_tokens,
    )


def _offer_scopes(form: RequestAccessForm | GiveAccessForm, api: ResourceRecord) -> None:
    form.scopes.choices = [
        SelectChoice(scope.name, scope.title or scope.name, {"help": scope.name}) for scope in api.scopes
    ]
