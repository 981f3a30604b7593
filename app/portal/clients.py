"""Clients: the list, the registration, the tabs of a client, and its pages that change it."""

from __future__ import annotations

from typing import Any

from flask import redirect, request
from werkzeug.wrappers import Response as BaseResponse
from wtforms import SelectChoice

from app.operations.authorization.approval_requests import count_open_requests
from app.operations.authorization.playground import may_try
from app.operations.clients.client_records import ClientRecord, list_clients
from app.operations.clients.client_usage import preview_deletion
from app.operations.clients.clients import (
    UpdatedClient,
    delete_client,
    get_client,
    register_client,
    update_client,
)
from app.operations.clients.ownership import find_owner, may_transfer_ownership
from app.operations.clients.resources import get_resource, list_selectable_resources
from app.operations.clients.scopes import list_offered_scopes
from app.portal.client_forms import (
    AccessForm,
    AdvancedForm,
    ClientForm,
    DetailsForm,
    RedirectsForm,
    RegistrationForm,
)
from app.portal.context import Confirmation, PageResponse, PortalContext, Undo, portal_page, search_query
from app.portal.labels import (
    AGENT_TYPE,
    API_TYPE,
    APPROVALS,
    CLIENT_SOURCES,
    CLIENT_TYPE_LABELS,
    TRUST_LEVELS,
)
from app.portal.ownership import requested_owner
from app.portal.redirect_uris import EXAMPLES, check_url, validate_redirect_uris
from app.rules.actor import Actor
from app.rules.clients.client_types import CLIENT_TYPES
from app.rules.errors import Conflict, Forbidden, InvalidInput
from app.web.forms import TypedConfirmationForm
from app.web.languages import ago, counted, gettext, html_gettext, lazy_gettext

# The tabs of a client, and the pages of each. A tab of several pages shows them in a second row.
_TABS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (lazy_gettext("Overview"), (("", lazy_gettext("Overview")),)),
    (lazy_gettext("Quickstart"), (("quickstart", lazy_gettext("Quickstart")),)),
    (lazy_gettext("Credentials"), (("credentials", lazy_gettext("Credentials")),)),
    (lazy_gettext("Redirects"), (("redirects", lazy_gettext("Redirects")),)),
    (
        lazy_gettext("Access"),
        (
            ("access", lazy_gettext("Scopes")),
            ("apis", lazy_gettext("APIs")),
            ("roles", lazy_gettext("Roles")),
            ("claims", lazy_gettext("Claims")),
        ),
    ),
    (
        lazy_gettext("Tokens"),
        (("tokens", lazy_gettext("Grants")), ("tokens/access", lazy_gettext("Access tokens"))),
    ),
    (lazy_gettext("Requests"), (("logs", lazy_gettext("Requests")),)),
    (
        lazy_gettext("Settings"),
        (("details", lazy_gettext("Details")), ("advanced", lazy_gettext("Advanced"))),
    ),
)


@portal_page("/clients", "GET")
def clients(context: PortalContext) -> PageResponse:
    """List the clients that the actor may see, by name; ``q`` searches, the filters are in the URL."""
    query = search_query()
    client_type = request.args.get("type", "")
    source = request.args.get("source", "")
    filters = {"type": client_type} if client_type in CLIENT_TYPE_LABELS else {}
    if source in CLIENT_SOURCES:
        filters["source"] = source
    of_owner, owner_email = requested_owner(context)
    filters |= of_owner
    page = list_clients(context.actor, context.page_request(), query=query or None, filters=filters)
    registration = context.organization.settings["oauth"]["dynamic_registration"]
    return context.render(
        "portal/clients/list.html",
        page=page,
        query=query,
        type=client_type,
        types=CLIENT_TYPE_LABELS,
        source=source,
        sources=CLIENT_SOURCES,
        owner_id=of_owner.get("owner_id"),
        owner_email=owner_email,
        waiting=count_open_requests(context.actor),
        uses_initial_access_tokens=registration["mode"] == "initial_access_token",
        is_filtered=bool(query or filters),
    )


@portal_page("/clients/new", "GET", "POST")
def new_client(context: PortalContext) -> PageResponse:
    """Ask what is being built, then with ``?type=`` register it. The client's page shows its first secret once.

    An API is created on a page of its own. An agent is a native app that names the APIs it calls. With ``?api=`` the
    client is the API itself, which may then introspect its tokens.
    """
    context.actor.require_for_own("clients:write")
    chosen = request.args.get("type", "")
    if chosen == "api":
        return redirect(context.url("/apis/new"), 303)
    is_agent = chosen == "agent"
    kind = "native" if is_agent else chosen
    if kind not in CLIENT_TYPE_LABELS:
        return _choose_type(context)
    api = (
        get_resource(context.actor, request.args["api"])
        if kind == "machine" and "api" in request.args
        else None
    )
    form = RegistrationForm(
        name=api.name if api else None,
        scopes=CLIENT_TYPES[kind].scopes,
        redirect_uris=["http://127.0.0.1/callback"] if is_agent else [],
        resources=[api.identifier] if api else [],
    )
    form.redirect_uris.description = gettext(
        "Where users return after signing in, one per line. URIs are compared exactly."
    )
    form.resources.choices = [
        SelectChoice(api.identifier, api.name, {"help": api.identifier})
        for api in list_selectable_resources(context.actor)
    ]
    if "authorization_code" not in CLIENT_TYPES[kind].grant_types:
        del form.redirect_uris, form.post_logout_redirect_uris
    scope_variables = form.set_scope_choices(
        context.actor, list_offered_scopes(context.actor), for_users=kind != "machine"
    )
    again_url = context.sign_in_again_url() if scope_variables["management_choices"] else None
    type_label = AGENT_TYPE if is_agent else CLIENT_TYPE_LABELS[kind]
    verdicts = (
        validate_redirect_uris(form.redirect_uris.data, kind, context.organization)
        if form.redirect_uris is not None and form.is_submitted()
        else []
    )
    # Without scripts, a button shows the verdicts.
    if not form.check.data and form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            registered = register_client(
                context.actor, form.values(kind, chooses_apis=is_agent or api is not None)
            )
            return context.done(
                f"/clients/{registered.client.client_id}",
                kind="client",
                name=registered.client.name,
                secret=registered.secret,
                warnings=registered.warnings,
            )
    return context.render(
        "portal/clients/new.html",
        form=form,
        type_label=type_label,
        is_agent=is_agent,
        api=api,
        again_url=again_url,
        verdicts=verdicts,
        check_url=check_url(context, kind),
        examples=EXAMPLES.get(kind, ()),
        **scope_variables,
    )


def client_page(
    context: PortalContext, client: ClientRecord, path: str, *, template: str | None = None, **variables: Any
) -> BaseResponse:
    """Render the page at ``path`` below the client's, with ``template`` if that is named otherwise."""
    url = context.url(f"/clients/{client.client_id}")
    pages = next(pages for _, pages in _TABS if path in dict(pages))
    return context.render(
        f"portal/clients/{template or path}.html",
        client=client,
        client_url=url,
        type_label=CLIENT_TYPE_LABELS[client.type],
        trust_levels=TRUST_LEVELS,
        sources=CLIENT_SOURCES,
        approvals=APPROVALS,
        page_label=dict(pages)[path],
        tabs=[
            _tab(url, label, of[0][0], is_current=of is pages)
            for label, of in _TABS
            if _may_open(context, client, of[0][0])
        ],
        subtabs=[_tab(url, label, name, is_current=name == path) for name, label in pages if len(pages) > 1],
        may_change=context.actor.has_permission("clients:write", owner_id=client.owner_id),
        may_read_logs=may_read_logs(context.actor, client),
        may_try=may_try(context.actor, client),
        **variables,
    )


@portal_page("/clients/<client_id>/redirects", "GET", "POST")
def client_redirects(context: PortalContext, client_id: str) -> PageResponse:
    """Show and change the redirect URIs."""
    found = get_client(context.actor, client_id)
    form = RedirectsForm(obj=found)
    verdicts = (
        validate_redirect_uris(form.redirect_uris.data, found.type, context.organization)
        if form.is_submitted()
        else []
    )
    variables = {"verdicts": verdicts, "check_url": check_url(context, found.type)}
    return edit_client(context, found, "redirects", form, **variables, examples=EXAMPLES.get(found.type, ()))


@portal_page("/clients/<client_id>/access", "GET", "POST")
def client_access(context: PortalContext, client_id: str) -> PageResponse:
    """Show and change the scopes of the client, and who may use it."""
    found = get_client(context.actor, client_id)
    form = AccessForm(obj=found)
    scope_variables = form.set_scope_choices(
        context.actor,
        list_offered_scopes(context.actor, also=found.scopes),
        for_users=found.type != "machine",
    )
    management = {name for name, _ in scope_variables["management_choices"]}
    listed = management | {choice.value for choice in form.scopes.choices}
    if not form.is_submitted():
        form.more_scopes.data = [scope for scope in found.scopes if scope not in listed]
    scopes = form.all_scopes()
    form.optional_scopes.choices = [scope for scope in scopes if scope != "openid"]
    form.approved_scopes.choices = scopes
    again_url = context.sign_in_again_url() if management else None
    return edit_client(context, found, "access", form, **scope_variables, again_url=again_url)


@portal_page("/clients/<client_id>/details", "GET", "POST")
def client_details(context: PortalContext, client_id: str) -> PageResponse:
    """Show and change what users read about the client, and whether it is active."""
    found = get_client(context.actor, client_id)
    form = DetailsForm(obj=found, is_active=found.status == "active")
    return edit_client(
        context,
        found,
        "details",
        form,
        owner=find_owner(context.actor, found.owner_id),
        may_transfer=may_transfer_ownership(context.actor),
    )


@portal_page("/clients/<client_id>/advanced", "GET", "POST")
def client_advanced(context: PortalContext, client_id: str) -> PageResponse:
    """Show and change settings whose defaults come from the type of client."""
    found = get_client(context.actor, client_id)
    form = AdvancedForm(obj=found)
    form.set_type_choices(found.type)
    if found.any_secret_method and not form.is_submitted():
        form.token_endpoint_auth_method.data = ""
    may_change = context.actor.has_permission("clients:write", owner_id=found.owner_id)
    again_url = context.sign_in_again_url() if may_change else None
    return edit_client(context, found, "advanced", form, again_url=again_url)


@portal_page("/clients/<client_id>/delete", "GET", "POST")
def client_delete(context: PortalContext, client_id: str) -> PageResponse:
    """Show the impact, and delete the client once its name is typed. Requires a fresh sign-in."""
    preview = preview_deletion(context.actor, client_id)
    found = preview.client
    form = TypedConfirmationForm()
    if form.is_confirmed(found.name):
        delete_client(context.actor, client_id)
        return context.done("/clients", "client-deleted")
    live = sum(secret.live_tokens for secret in preview.secrets)
    impact = (
        gettext(
            "Users can no longer sign in to the client, and the client can no longer access their accounts."
        ),
        gettext(
            "%(secrets)s and %(tokens)s will be revoked.",
            secrets=counted(len(preview.secrets), "active secret"),
            tokens=counted(live, "active token"),
        ),
        gettext("All consents for this client are deleted."),
        html_gettext("The client was last used %(at)s.", at=ago(found.last_used_at))
        if found.last_used_at
        else gettext("The client has never been used."),
    )
    parents = (
        (gettext("Clients"), "/clients"),
        (found.name, f"/clients/{found.client_id}"),
        (gettext("Details"), f"/clients/{found.client_id}/details"),
    )
    note = gettext(
        "You can't undo this. The client ID %(client_id)s is never reused.", client_id=found.client_id
    )
    return context.confirm(
        form,
        Confirmation(
            gettext("Delete %(name)s?", name=found.name), gettext("Delete client"), parents, impact, note
        ),
    )


def _choose_type(context: PortalContext) -> PageResponse:
    types = {**CLIENT_TYPE_LABELS, "api": API_TYPE, "agent": AGENT_TYPE}
    return context.render("portal/clients/choose_type.html", types=types)


def _restore_redirects(before: ClientRecord, updated: UpdatedClient) -> Undo | None:
    """Return the form that adds the removed redirect URIs again, if any was removed."""
    lists = ("redirect_uris", "post_logout_redirect_uris")
    after = updated.client
    if not any(set(getattr(before, name)) - set(getattr(after, name)) for name in lists):
        return None
    fields = {name: "\n".join(getattr(before, name)) for name in lists}
    fields |= {"backchannel_logout_uri": before.backchannel_logout_uri or "", "version": str(after.version)}
    return Undo(f"/clients/{after.client_id}/redirects", "clients:write", fields)


def may_read_logs(actor: Actor, client: ClientRecord) -> bool:
    """Return whether the actor can open the client's tab *Requests*."""
    return actor.has_permission("logs:read", owner_id=client.owner_id)


def _may_open(context: PortalContext, client: ClientRecord, path: str) -> bool:
    if path == "logs":
        return may_read_logs(context.actor, client)
    if path == "tokens":
        return context.actor.has_permission("tokens:read", owner_id=client.owner_id)
    return path != "redirects" or "authorization_code" in client.grant_types


def _tab(url: str, label: str, path: str, *, is_current: bool) -> dict[str, Any]:
    return {"label": label, "url": f"{url}/{path}".rstrip("/"), "current": is_current}


def edit_client(
    context: PortalContext, client: ClientRecord, tab: str, form: ClientForm, **variables: Any
) -> PageResponse:
    """Show the form of a tab, or save it; errors are shown at their fields."""
    if form.validate_on_submit():
        try:
            with form.show_edit_errors(gettext("this client"), client.version):
                updated = update_client(
                    context.actor, client.client_id, form.values(), expected_version=form.version.data
                )
                page = f"/clients/{client.client_id}/{tab}"
                undo = _restore_redirects(client, updated) if tab == "redirects" else None
                return context.done(page, "saved" if updated.changed else "unchanged", undo=undo)
        except Forbidden as error:
            form.add_errors(error)
    return client_page(context, client, tab, form=form, **variables)
