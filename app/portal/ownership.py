"""Owners of clients and APIs: change one, or transfer everything that a user owns."""

from __future__ import annotations

from flask import redirect, request
from wtforms import StringField
from wtforms.validators import InputRequired, Length

from app.operations.clients.clients import get_client
from app.operations.clients.ownership import (
    Owner,
    change_client_owner,
    change_resource_owner,
    count_owned,
    find_known_owner,
    find_owner,
    require_transfer_permission,
    transfer_ownership,
)
from app.operations.clients.resources import get_resource
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.portal.users import describe_owned, identified_by
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import parse_public_id
from app.web.forms import NO_AUTOCOMPLETE, PageForm, VersionField
from app.web.languages import gettext, lazy_gettext

_OF_OPERATION = {"user_id": "email"}


class OwnerForm(PageForm):
    """Names the new owner."""

    version = VersionField()
    email = StringField(
        lazy_gettext("Email address or ID of the new owner"),
        [InputRequired(), Length(max=254)],
        render_kw=NO_AUTOCOMPLETE,
    )


@portal_page("/clients/<client_id>/owner", "GET", "POST")
def client_owner(context: PortalContext, client_id: str) -> PageResponse:
    """Change the owner of a client. Requires a fresh sign-in."""
    actor = context.actor
    client = get_client(actor, client_id)
    actor.require("clients:write", owner_id=client.owner_id)
    require_fresh_user_sign_in(actor)
    form = OwnerForm(version=client.version)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this client"), client.version, fields=_OF_OPERATION):
            updated = change_client_owner(
                actor, client_id, identified_by(form.email.data), expected_version=form.version.data
            )
            still_sees = actor.has_permission("clients:read", owner_id=updated.client.owner_id)
            page = f"/clients/{client_id}/details" if still_sees else "/clients"
            return context.done(page, "owner-changed" if updated.changed else "unchanged")
    parents = (
        (gettext("Clients"), "/clients"),
        (client.name, f"/clients/{client_id}"),
        (gettext("Details"), f"/clients/{client_id}/details"),
    )
    owner = find_owner(actor, client.owner_id)
    impact = (
        _lost(owner),
        gettext("Its secrets, tokens and consents stay valid."),
        _known_secrets() if owner and client.uses_secret else None,
    )
    return _confirm(context, form, client.name, parents, impact)


@portal_page("/apis/<api_id>/owner", "GET", "POST")
def api_owner(context: PortalContext, api_id: str) -> PageResponse:
    """Change the owner of an API. Requires a fresh sign-in."""
    actor = context.actor
    api = get_resource(actor, api_id)
    actor.require("resources:write", owner_id=api.owner_id)
    require_fresh_user_sign_in(actor)
    form = OwnerForm(version=api.version)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this API"), api.version, fields=_OF_OPERATION):
            updated = change_resource_owner(
                actor, api_id, identified_by(form.email.data), expected_version=form.version.data
            )
            still_sees = actor.has_permission("resources:read", owner_id=updated.record.owner_id)
            page = f"/apis/{api_id}" if still_sees else "/apis"
            return context.done(page, "owner-changed" if updated.changed else "unchanged")
    parents = (gettext("APIs and scopes"), "/apis"), (api.name, f"/apis/{api_id}")
    impact = (
        _lost(find_owner(actor, api.owner_id)),
        gettext("Its tokens, and the access of clients, stay valid."),
    )
    return _confirm(context, form, api.name, parents, impact)


@portal_page("/users/<user_id>/transfer", "GET", "POST")
def user_transfer(context: PortalContext, user_id: str) -> PageResponse:
    """Make another user the owner of everything that a user owns, also of a deleted one. Requires a fresh sign-in."""
    require_transfer_permission(context.actor)
    owner = find_owner(context.actor, parse_public_id("usr", user_id))
    if owner is None:
        raise NotFound(lazy_gettext("There is no such user."))
    owned = count_owned(context.actor, owner.id)
    listed = describe_owned(owned)
    if not (listed or owner.is_member):
        raise NotFound(lazy_gettext("There is no such user."))
    own_page = f"/users/{user_id}" if owner.is_member else "/clients"
    if not listed and request.method == "GET":
        return redirect(context.url(own_page), 303)
    require_fresh_user_sign_in(context.actor)
    form = OwnerForm()
    del form.version
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, fields=_OF_OPERATION):
            moved = transfer_ownership(context.actor, user_id, identified_by(form.email.data))
            return context.done(own_page, "ownership-transferred" if describe_owned(moved) else "unchanged")
    name = owner.email or user_id
    impact = (
        gettext("The new owner gets: %(owned)s.", owned=listed) if listed else None,
        _lost(owner),
        gettext("Secrets, tokens and consents stay valid."),
        _known_secrets() if owned.clients else None,
    )
    parents = (gettext("Users"), "/users"), (name, own_page)
    title = gettext("Transfer what %(name)s owns?", name=name)
    return context.confirm(form, Confirmation(title, gettext("Transfer"), parents, impact))


def requested_owner(context: PortalContext) -> tuple[dict[str, str], str | None]:
    """Return the filter ``owner_id`` of the URL, if it is valid, and the owner's email if the actor may know it."""
    owner_id = request.args.get("owner_id", "")
    parsed = parse_public_id("usr", owner_id)
    if parsed is None:
        return {}, None
    owner = find_known_owner(context.actor, parsed)
    return {"owner_id": owner_id}, owner.email if owner else None


def _confirm(
    context: PortalContext,
    form: OwnerForm,
    name: str,
    parents: tuple[tuple[str, str], ...],
    impact: tuple[str | None, ...],
) -> PageResponse:
    title = gettext("Change the owner of %(name)s?", name=name)
    return context.confirm(form, Confirmation(title, gettext("Change owner"), parents, impact))


def _lost(owner: Owner | None) -> str:
    if owner is None:
        return gettext("It has no owner now.")
    if owner.email is None:
        return gettext("The owner was deleted.")
    return gettext("%(email)s loses access, unless their role covers what others own.", email=owner.email)


def _known_secrets() -> str:
    return gettext("The former owner may still know secrets. Rotate them afterwards.")
