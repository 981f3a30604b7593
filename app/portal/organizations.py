"""Organizations of this installation, for root's administrators."""

from __future__ import annotations

from typing import Any

from flask import redirect, request

from app.operations.organizations.organizations import (
    create_organization,
    delete_organization,
    get_organization,
    list_organizations,
    restore_organization,
    update_organization,
)
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.organizations.organizations import ROOT_SLUG
from app.web.forms import field_errors, text

_STATUSES = ("active", "suspended", "deleted")


def _at_root(visit: Visit) -> None:
    # Which pages there are is the portal's; what may be done here the operations require, wherever they are asked.
    if visit.organization.slug != ROOT_SLUG:
        raise NotFound("There is no such page.")
    visit.actor.require("organizations:read")


@portal.get("/portal/<organization>/organizations")
@visiting
def organizations(visit: Visit) -> Answer:
    """Every organization, by id; ``q`` searches, ``status`` narrows."""
    _at_root(visit)
    query = request.args.get("q", "").strip()[:100]
    status = request.args.get("status", "")
    status = status if status in _STATUSES else ""
    page = list_organizations(
        visit.actor,
        after=position(visit.organization.id, "portal organizations"),
        query=query or None,
        status=status or None,
    )
    return visit.render(
        "portal/organizations/list.html",
        page=page,
        query=query,
        status_filter=status,
        statuses=_STATUSES,
        pager=pages_of(page, visit.organization.id, "portal organizations"),
    )


@portal.route("/portal/<organization>/organizations/new", methods=["GET", "POST"])
@visiting
def new_organization(visit: Visit) -> Answer:
    """The organization stands; where a first administrator was named, the answer shows the invitation's link."""
    _at_root(visit)
    visit.actor.require("organizations:write")
    values = {name: text(name) for name in ("name", "id", "email", "person")}
    errors: dict[str, str] = {}
    if request.method == "POST":
        fields: dict[str, Any] = {"name": values["name"]}
        if values["id"]:
            fields["id"] = values["id"]
        if values["email"]:
            fields["admin"] = {"email": values["email"], "name": values["person"] or None}
        try:
            created = create_organization(visit.actor, fields)
        except (InvalidInput, Conflict) as refusal:
            errors = field_errors(refusal, {"admin.email": "email", "admin.name": "person"})
        else:
            if created.invitation is None:
                return redirect(f"{visit.url('/organizations')}/{created.organization.slug}", 303)
            return visit.render(
                "portal/organizations/created.html", record=created.organization, link=created.invitation.link,
                invitation=created.invitation.invitation,
            )  # fmt: skip
    return visit.render(
        "portal/organizations/new.html", code=400 if errors else 200, values=values, errors=errors
    )


@portal.route("/portal/<organization>/organizations/<slug>", methods=["GET", "POST"])
@visiting
def organization_page(visit: Visit, slug: str) -> Answer:
    """One organization; ``act`` suspends, resumes or restores it."""
    _at_root(visit)
    if request.method == "POST":
        act = text("act")
        if act == "restore":
            restore_organization(visit.actor, slug)
            return visit.done(f"/organizations/{slug}", "organization-restored")
        if act in {"suspend", "resume"}:
            status = "suspended" if act == "suspend" else "active"
            update_organization(visit.actor, slug, {"status": status})
            return visit.done(
                f"/organizations/{slug}", f"organization-{status if act == 'suspend' else 'resumed'}"
            )
        raise InvalidInput("The form did not say what to do.", field="act")
    return visit.render("portal/organizations/show.html", record=get_organization(visit.actor, slug))


@portal.route("/portal/<organization>/organizations/<slug>/delete", methods=["GET", "POST"])
@visiting
def organization_delete(visit: Visit, slug: str) -> Answer:
    """What will stop working; afterwards the organization is deleted. Asks for a fresh sign-in."""
    _at_root(visit)
    visit.actor.require("organizations:write")
    require_fresh_sign_in(visit.actor)
    found = get_organization(visit.actor, slug)
    errors: dict[str, str] = {}
    if request.method == "POST":
        if text("slug") == slug:
            delete_organization(visit.actor, slug)
            return visit.done(f"/organizations/{slug}", "organization-deleted")
        errors["slug"] = "This is not the organization’s id. Type it as it stands above."
    return visit.render(
        "portal/organizations/delete.html", code=400 if errors else 200, record=found, errors=errors
    )
