"""Organizations of this installation, for root's administrators."""

from __future__ import annotations

from typing import Any

from flask import request
from wtforms import StringField, SubmitField
from wtforms.validators import Length

from app.operations.organizations.organizations import (
    OrganizationRecord,
    create_organization,
    delete_organization,
    get_organization,
    list_organizations,
    update_organization,
)
from app.operations.organizations.overview import MAX_COUNT, count_affected
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.portal.context import Confirmation, PageResponse, PortalContext, Undo, portal_page, search_query
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.organizations.organizations import ROOT_SLUG
from app.web.forms import (
    NO_AUTOCOMPLETE,
    EmailField,
    PageForm,
    TypedConfirmationForm,
    name_field,
    plain_text_field,
)
from app.web.languages import counted, gettext, lazy_gettext

_STATUSES = {
    "active": lazy_gettext("Active"),
    "suspended": lazy_gettext("Suspended"),
    "deleted": lazy_gettext("Deleted"),
}


class OrganizationForm(PageForm):
    """Creates an organization, and invites its first administrator."""

    name = name_field(lazy_gettext("Shown to users on the sign-in page."))
    id = StringField(
        lazy_gettext("ID"),
        [Length(max=40)],
        description=lazy_gettext(
            "Part of its URLs. It can't be changed later. Leave empty to derive it from the name."
        ),
        render_kw={**NO_AUTOCOMPLETE, "spellcheck": "false"},
    )
    email = EmailField(
        lazy_gettext("Administrator's email"),
        description=lazy_gettext("Optional. The administrator receives an invitation."),
        render_kw=NO_AUTOCOMPLETE,
    )
    person = plain_text_field(
        lazy_gettext("Administrator's name"), max_length=100, description=lazy_gettext("Optional.")
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        values: dict[str, Any] = {"name": self.name.data}
        if self.id.data:
            values["id"] = self.id.data
        if self.email.data:
            values["admin"] = {"email": self.email.data, "name": self.person.data or None}
        return values


class OrganizationStatusForm(PageForm):
    """Resumes or restores an organization."""

    resume = SubmitField(lazy_gettext("Resume"))
    restore = SubmitField(lazy_gettext("Restore"))
    restore_suspended = SubmitField(lazy_gettext("Restore as suspended"))


def _require_root(context: PortalContext) -> None:
    # The portal decides which pages exist; the operations require the permissions for what they do.
    if context.organization.slug != ROOT_SLUG:
        raise NotFound(lazy_gettext("This page does not exist."))
    context.actor.require("organizations:read")


@portal_page("/organizations", "GET")
def organizations(context: PortalContext) -> PageResponse:
    """List every organization by ID; ``q`` searches, ``status`` filters."""
    _require_root(context)
    query = search_query()
    status = request.args.get("status", "")
    status = status if status in _STATUSES else ""
    filters = {"status": status} if status else {}
    page = list_organizations(context.actor, context.page_request(), query=query or None, filters=filters)
    return context.render(
        "portal/organizations/list.html",
        page=page,
        query=query,
        status_filter=status,
        statuses=_STATUSES,
    )


@portal_page("/organizations/new", "GET", "POST")
def new_organization(context: PortalContext) -> PageResponse:
    """Create an organization; its page shows the invitation link of the first administrator once."""
    _require_root(context)
    context.actor.require("organizations:write")
    form = OrganizationForm()
    if form.validate_on_submit():
        names = {"admin.email": "email", "admin.name": "person"}
        with form.show_errors(InvalidInput, Conflict, fields=names):
            created = create_organization(context.actor, form.values())
            page, new = f"/organizations/{created.organization.slug}", created.invitation
            shares_name = created.shares_name or None
            if new is None:
                return context.done(
                    page, "organization-created", shares_name=shares_name, has_no_administrator=True
                )
            return context.done(
                page,
                "organization-created",
                shares_name=shares_name,
                kind="invitation",
                name=new.invitation.email,
                link=new.link,
                role=gettext("administrator"),
                expires_at=new.invitation.expires_at,
            )
    return context.render("portal/organizations/new.html", form=form, again_url=context.sign_in_again_url())


@portal_page("/organizations/<slug>", "GET", "POST")
def organization_page(context: PortalContext, slug: str) -> PageResponse:
    """Show one organization; resume or restore it."""
    _require_root(context)
    form = OrganizationStatusForm()
    if form.validate_on_submit():
        if form.restore.data or form.restore_suspended.data:
            status = "active" if form.restore.data else "suspended"
            update_organization(context.actor, slug, {"status": status})
            return context.done(f"/organizations/{slug}", "organization-restored")
        if form.resume.data:
            update_organization(context.actor, slug, {"status": "active"})
            return context.done(f"/organizations/{slug}", "organization-resumed")
        form.add_error(gettext("Choose an action."))
    return context.render(
        "portal/organizations/show.html", form=form, record=get_organization(context.actor, slug)
    )


@portal_page("/organizations/<slug>/suspend", "GET", "POST")
def organization_suspend(context: PortalContext, slug: str) -> PageResponse:
    """Show what stops, and suspend the organization."""
    _require_root(context)
    context.actor.require("organizations:write")
    page = f"/organizations/{slug}"
    found = get_organization(context.actor, slug)
    affected = count_affected(context.actor, slug)
    impact = (
        (
            gettext(
                "%(users)s can't sign in, and %(sessions)s can't be used.",
                users=_counted(affected.users, "user"),
                sessions=_counted(affected.sessions, "active session"),
            )
        ),
        gettext(
            "%(clients)s can't get tokens. APIs reject the tokens that they have.",
            clients=_counted(affected.clients, "client"),
        ),
        gettext(
            "Nothing is deleted, and clients receive no logout notifications. You can resume the organization at any"
            " time."
        ),
    )
    parents = ((gettext("Organizations"), "/organizations"), (found.name, page))
    return context.confirm_change(
        Confirmation(
            gettext("Suspend %(name)s?", name=found.name), gettext("Suspend organization"), parents, impact
        ),
        lambda: update_organization(context.actor, slug, {"status": "suspended"}),
        page,
        "organization-suspended",
        Undo(page, "organizations:write", {"resume": "1"}),
    )


def _counted(number: int, noun: str) -> str:
    count = counted(number, noun)
    return gettext("%(count)s or more", count=count) if number >= MAX_COUNT else count


@portal_page("/organizations/<slug>/delete", "GET", "POST")
def organization_delete(context: PortalContext, slug: str) -> PageResponse:
    """Show the impact, and delete the organization. Requires a fresh sign-in."""
    _require_root(context)
    context.actor.require("organizations:write")
    require_fresh_sign_in(context.actor)
    found = get_organization(context.actor, slug)
    form = TypedConfirmationForm()
    if form.is_confirmed(slug):
        delete_organization(context.actor, slug)
        return context.done(f"/organizations/{slug}", "organization-deleted")
    parents = ((gettext("Organizations"), "/organizations"), (found.name, f"/organizations/{slug}"))
    return context.confirm(form, deletion_of(found, parents, by_root=True))


def deletion_of(
    record: OrganizationRecord, parents: tuple[tuple[str, str], ...], *, by_root: bool
) -> Confirmation:
    """Return the page that confirms the deletion of an organization, by an administrator of root or its own."""
    impact = (
        gettext("Users can no longer sign in to %(name)s.", name=record.name)
        if by_root
        else gettext("Users can no longer sign in to %(name)s, including you.", name=record.name),
        gettext("All of its clients, secrets and tokens stop working immediately."),
        gettext("Its data is purged after 30 days. Until then, you can restore the organization.")
        if by_root
        else gettext(
            "Its data is purged after 30 days. Until then, an instance administrator can restore the organization."
        ),
        gettext("Its ID %(slug)s is never reused.", slug=record.slug),
    )
    return Confirmation(
        gettext("Delete %(name)s?", name=record.name), gettext("Delete organization"), parents, impact
    )
