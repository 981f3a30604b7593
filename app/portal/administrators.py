"""Administrators: who holds which role, and the invitations that are on their way."""

from __future__ import annotations

from flask import request

from app.operations.organizations.administrators import (
    add_administrator,
    get_administrator,
    list_administrators,
    remove_administrator,
)
from app.operations.users.invitations import list_invitations, revoke_invitation
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import field_errors, text

_OPEN_INVITATIONS = 50


@portal.get("/portal/<organization>/administrators")
@visiting
def administrators(visit: Visit) -> Answer:
    """Who holds a role, in the order in which they got it, and the open invitations."""
    slug = visit.organization.slug
    page = list_administrators(
        visit.actor, slug, after=position(visit.organization.id, "portal administrators")
    )
    return visit.render(
        "portal/administrators/list.html",
        page=page,
        roles=effective_roles(visit.organization.settings),
        invitations=list_invitations(visit.actor, slug, limit=_OPEN_INVITATIONS).items,
        pager=pages_of(page, visit.organization.id, "portal administrators"),
    )


@portal.route("/portal/<organization>/administrators/new", methods=["GET", "POST"])
@visiting
def new_administrator(visit: Visit) -> Answer:
    """Somebody known is added at once; an unknown address gets an invitation, whose link the answer shows."""
    visit.actor.require("admins:write")
    role = text("role") or request.args.get("role", "admin")
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            added = add_administrator(
                visit.actor,
                visit.organization.slug,
                **_named(text("email")),
                name=text("name") or None,
                role=role,
            )
        except (InvalidInput, Conflict) as refusal:
            errors = field_errors(refusal)
        else:
            if added.invitation is None:
                return visit.done("/administrators", "administrator-added")
            return visit.render(
                "portal/administrators/invited.html",
                invitation=added.invitation.invitation,
                link=added.link,
                roles=effective_roles(visit.organization.settings),
            )
    return visit.render(
        "portal/administrators/new.html",
        code=400 if errors else 200,
        roles=effective_roles(visit.organization.settings),
        values={"email": text("email") or request.args.get("email", ""), "name": text("name"), "role": role},
        errors=errors,
    )


@portal.route("/portal/<organization>/administrators/<admin_id>/remove", methods=["GET", "POST"])
@visiting
def remove(visit: Visit, admin_id: str) -> Answer:
    """What the person can no longer do; afterwards they hold the role no more."""
    visit.actor.require("admins:write")
    slug = visit.organization.slug
    found = get_administrator(visit.actor, slug, admin_id)
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            remove_administrator(visit.actor, slug, admin_id)
        except Conflict as refusal:
            errors = {"": refusal.description}
        else:
            is_self = found.user_id == visit.actor.user_id
            return visit.done("" if is_self else "/administrators", "administrator-removed")
    return visit.render(
        "portal/administrators/remove.html",
        code=409 if errors else 200,
        admin=found,
        is_self=found.user_id == visit.actor.user_id,
        roles=effective_roles(visit.organization.settings),
        errors=errors,
    )


@portal.post("/portal/<organization>/administrators/invitations/<invitation_id>/withdraw")
@visiting
def withdraw_invitation(visit: Visit, invitation_id: str) -> Answer:
    """The link works no longer."""
    revoke_invitation(visit.actor, visit.organization.slug, invitation_id)
    return visit.done("/administrators", "invitation-withdrawn")


def _named(who: str) -> dict[str, str]:
    """Somebody by e-mail, or by the id that the refusal of an unconfirmed address tells."""
    return {"user_id": who} if who.startswith("usr_") else {"email": who}
