"""Groups of users: the list, one group with its members, its form, and its deletion."""

from __future__ import annotations

from typing import Any

from wtforms import StringField
from wtforms.validators import InputRequired, Length

from app.operations.sign_in.identity_providers import find_provider_names
from app.operations.users.groups import (
    GroupRecord,
    add_member,
    create_group,
    delete_group,
    get_group,
    list_groups,
    list_members,
    remove_member,
    update_group,
)
from app.portal.context import Confirmation, PageResponse, PortalContext, Undo, portal_page, search_query
from app.portal.users import identified_by, managing_provider
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import (
    CODE,
    NO_AUTOCOMPLETE,
    PageForm,
    StringListField,
    VersionField,
    name_field,
    plain_text_field,
)
from app.web.languages import counted, gettext, lazy_gettext


class GroupForm(PageForm):
    """A group's name and description, and which groups at identity providers it follows."""

    version = VersionField()
    name = name_field(lazy_gettext("Apps receive this name."))
    description = plain_text_field(lazy_gettext("Description"), max_length=500)

    def values(self) -> dict[str, Any]:
        """Return the fields as the operations take them."""
        provider_groups = [
            {"provider_id": field.name, "value": value} for field in self.providers for value in field.data
        ]
        return {
            "name": self.name.data,
            "description": self.description.data,
            "provider_groups": provider_groups,
        }

    @property
    def providers(self) -> list[StringListField]:
        """The field of each identity provider, which lists groups there. Its name is the provider's id."""
        return [field for field in self if isinstance(field, StringListField)]

    @property
    def provider_fields(self) -> dict[str, str]:
        """The line of the form for each field of the operations that is a group at a provider."""
        lines = [f"{field.name}[{line}]" for field in self.providers for line in range(len(field.data))]
        return {f"provider_groups[{position}].value": line for position, line in enumerate(lines)}


def _group_form(context: PortalContext, group: GroupRecord | None = None) -> GroupForm:
    """Return the form of a group, with a field for each identity provider of the organization."""
    fields = {
        provider_id: StringListField(gettext("Groups at %(name)s", name=name), render_kw=CODE)
        for provider_id, name in find_provider_names(context.organization.id).items()
    }
    values: dict[str, list[str]] = {provider_id: [] for provider_id in fields}
    for each in group.provider_groups if group is not None else ():
        values.setdefault(each["provider_id"], []).append(each["value"])
    return type("GroupForm", (GroupForm,), fields)(obj=group, data=values)


class MemberForm(PageForm):
    """Adds a user to a group."""

    email = StringField(
        lazy_gettext("Email address or ID of the user"),
        [InputRequired(), Length(max=254)],
        render_kw=NO_AUTOCOMPLETE,
    )


@portal_page("/groups", "GET")
def groups(context: PortalContext) -> PageResponse:
    """List the groups by name; ``q`` searches."""
    query = search_query()
    page = list_groups(context.actor, context.organization.slug, context.page_request(), query=query or None)
    return context.render("portal/groups/list.html", page=page, query=query)


@portal_page("/groups/new", "GET", "POST")
def group_new(context: PortalContext) -> PageResponse:
    """Create a group."""
    context.actor.require("users:write")
    form = _group_form(context)
    del form.version
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, fields=form.provider_fields):
            group = create_group(context.actor, context.organization.slug, form.values())
            return context.done(f"/groups/{group.public_id}", "group-created")
    return context.render("portal/groups/form.html", form=form, group=None)


@portal_page("/groups/<group_id>", "GET", "POST")
def group_page(context: PortalContext, group_id: str) -> PageResponse:
    """Show one group with its members, which ``q`` searches, and add one."""
    slug = context.organization.slug
    group = get_group(context.actor, slug, group_id)
    form = MemberForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, fields={"user_id": "email"}):
            add_member(context.actor, slug, group_id, identified_by(form.email.data))
            return context.done(f"/groups/{group_id}", "member-added")
    query = search_query()
    page = list_members(context.actor, slug, group_id, context.page_request(), query=query or None)
    providers = find_provider_names(context.organization.id) if group.provider_groups else {}
    return context.render(
        "portal/groups/show.html",
        form=form,
        group=group,
        manager=managing_provider(context, group.provisioned_by),
        page=page,
        query=query,
        providers=providers,
    )


@portal_page("/groups/<group_id>/edit", "GET", "POST")
def group_edit(context: PortalContext, group_id: str) -> PageResponse:
    """Show and change the name and description of a group."""
    context.actor.require("users:write")
    slug = context.organization.slug
    group = get_group(context.actor, slug, group_id)
    form = _group_form(context, group)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this group"), group.version, fields=form.provider_fields):
            _, changed = update_group(
                context.actor, slug, group_id, form.values(), expected_version=form.version.data
            )
            return context.done(f"/groups/{group_id}", "saved" if changed else "unchanged")
    return context.render("portal/groups/form.html", form=form, group=group)


@portal_page("/groups/<group_id>/members/<user_id>/remove", "POST")
def member_remove(context: PortalContext, group_id: str, user_id: str) -> PageResponse:
    """Remove a user from a group."""
    remove_member(context.actor, context.organization.slug, group_id, user_id)
    undo = Undo(f"/groups/{group_id}", "users:write", {"email": user_id})
    return context.done(f"/groups/{group_id}", "member-removed", undo=undo)


@portal_page("/groups/<group_id>/delete", "GET", "POST")
def group_delete(context: PortalContext, group_id: str) -> PageResponse:
    """Confirm and delete a group."""
    context.actor.require("users:write")
    slug = context.organization.slug
    group = get_group(context.actor, slug, group_id)
    parents = (
        (gettext("Users"), "/users"),
        (gettext("Groups"), "/groups"),
        (group.name, f"/groups/{group_id}"),
    )
    members = counted(group.members, "member")
    impact = (
        gettext(
            "%(members)s will leave the group and lose the roles in apps that they have through it.",
            members=members,
        ),
        gettext("The accounts stay."),
    )
    return context.confirm_change(
        Confirmation(
            gettext("Delete the group %(name)s?", name=group.name), gettext("Delete group"), parents, impact
        ),
        lambda: delete_group(context.actor, slug, group_id),
        "/groups",
        "group-deleted",
    )
