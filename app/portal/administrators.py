"""Administrators of an organization, and their open invitations."""

from __future__ import annotations

from flask import request
from wtforms import RadioField, SelectChoice, StringField
from wtforms.validators import InputRequired, Length

from app.operations.organizations.administrators import (
    add_administrator,
    get_administrator,
    list_administrators,
    remove_administrator,
)
from app.operations.users.invitations import list_invitations, revoke_invitation
from app.portal.blueprint import portal
from app.portal.context import PageResponse, PortalContext, portal_page
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import PageForm

_MAX_INVITATIONS = 50
_LISTING = "portal administrators"


class AdministratorForm(PageForm):
    """Adds an administrator, or invites one."""

    email = StringField(
        "Email",
        [InputRequired()],
        description="Someone with an account here gets the role immediately. Anyone else receives an invitation"
        " by email, or you get a link to share if no mail server is configured. You can also enter a user ID"
        " (usr_…).",
        render_kw={"autocomplete": "off"},
    )
    name = StringField(
        "Name",
        [Length(max=100)],
        description="Optional. Used in the invitation.",
        render_kw={"autocomplete": "off"},
    )
    role = RadioField("Role", validate_choice=False)


@portal.get("/portal/<organization>/administrators")
@portal_page
def administrators(context: PortalContext) -> PageResponse:
    """List the administrators and their open invitations."""
    slug = context.organization.slug
    page = list_administrators(context.actor, slug, after=context.position(_LISTING))
    return context.render(
        "portal/administrators/list.html",
        page=page,
        roles=effective_roles(context.organization.settings),
        invitations=list_invitations(context.actor, slug, limit=_MAX_INVITATIONS).items,
        pager=context.pager(page, _LISTING),
    )


@portal.route("/portal/<organization>/administrators/new", methods=["GET", "POST"])
@portal_page
def new_administrator(context: PortalContext) -> PageResponse:
    """Add a known user at once, or invite an unknown one and show the link of the invitation."""
    context.actor.require("admins:write")
    roles = effective_roles(context.organization.settings)
    form = AdministratorForm(email=request.args.get("email", ""), role=request.args.get("role", "admin"))
    form.role.choices = [
        SelectChoice(key, role.name, {"help": role.description}) for key, role in roles.items()
    ]
    if form.validate_on_submit():
        try:
            added = add_administrator(
                context.actor,
                context.organization.slug,
                **_identified_by(form.email.data),
                name=form.name.data or None,
                role=form.role.data or "admin",
            )
        except (InvalidInput, Conflict) as error:
            form.add_errors(error, {"user_id": "email"})
        else:
            if added.invitation is None:
                return context.done("/administrators", "administrator-added")
            return context.render(
                "portal/administrators/invited.html",
                invitation=added.invitation.invitation,
                link=added.link,
                roles=roles,
            )
    return context.render("portal/administrators/new.html", form=form)


@portal.route("/portal/<organization>/administrators/<admin_id>/remove", methods=["GET", "POST"])
@portal_page
def remove(context: PortalContext, admin_id: str) -> PageResponse:
    """Confirm and remove an administrator's role."""
    context.actor.require("admins:write")
    slug = context.organization.slug
    admin = get_administrator(context.actor, slug, admin_id)
    is_self = admin.user_id == context.actor.user_id
    form = PageForm()
    if form.validate_on_submit():
        try:
            remove_administrator(context.actor, slug, admin_id)
        except Conflict as error:
            form.add_errors(error)
        else:
            return context.done("" if is_self else "/administrators", "administrator-removed")
    return context.render(
        "portal/administrators/remove.html",
        form=form,
        code=409 if form.errors else 200,
        admin=admin,
        is_self=is_self,
        roles=effective_roles(context.organization.settings),
    )


@portal.post("/portal/<organization>/administrators/invitations/<invitation_id>/revoke")
@portal_page
def revoke_administrator_invitation(context: PortalContext, invitation_id: str) -> PageResponse:
    """Revoke an invitation; its link stops working."""
    revoke_invitation(context.actor, context.organization.slug, invitation_id)
    return context.done("/administrators", "invitation-revoked")


def _identified_by(email_or_id: str) -> dict[str, str]:
    return {"user_id": email_or_id} if email_or_id.startswith("usr_") else {"email": email_or_id}
