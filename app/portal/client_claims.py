"""A client's roles with the users and groups that have them, and the claims that it receives."""

from __future__ import annotations

from typing import Any

from flask import request
from wtforms import Form, SelectMultipleField, StringField
from wtforms.validators import Length
from wtforms.widgets import CheckboxInput, ListWidget

from app.operations.clients.clients import get_client, update_client
from app.operations.store.rows import Page, iterate_pages
from app.operations.users.app_roles import (
    RoleAssignmentRecord,
    assign_app_role,
    list_app_role_assignments,
    remove_app_role,
)
from app.operations.users.groups import list_groups
from app.portal.client_forms import ClientForm
from app.portal.clients import client_page, edit_client
from app.portal.context import PageResponse, PortalContext, Undo, portal_page
from app.portal.labels import CLAIM_TARGETS
from app.portal.users import identified_by
from app.rules.clients.app_claims import (
    ATTRIBUTE_PREFIX,
    MAX_APP_ROLES,
    MAX_MAPPINGS,
    STANDARD_SOURCES,
    TARGETS,
)
from app.rules.directory.attributes import attributes_of
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import CODE, NO_AUTOCOMPLETE, PageForm, RowsField, VersionField, select_field
from app.web.languages import gettext, lazy_gettext

_EMPTY_ROWS = 2


class RoleRow(Form):
    """One row of the table of roles; the rules check it together with the others."""

    key = StringField(lazy_gettext("Key"), render_kw={**CODE, "maxlength": 64})
    name = StringField(lazy_gettext("Name"), render_kw={"autocomplete": "off", "maxlength": 100})


class RolesForm(PageForm):
    """The roles that the client declares."""

    version = VersionField()
    app_roles = RowsField(RoleRow, lazy_gettext("Roles"), max_rows=MAX_APP_ROLES + _EMPTY_ROWS)

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them; rows without a key are dropped."""
        rows = [{name: (value or "").strip() for name, value in row.items()} for row in self.app_roles.data]
        return {"app_roles": [row for row in rows if row["key"]]}


class MappingRow(Form):
    """One row of the table of claims; the rules check it together with the others."""

    claim = StringField(lazy_gettext("Claim"), render_kw={**CODE, "maxlength": 100})
    source = select_field(lazy_gettext("Source"))
    targets = SelectMultipleField(
        lazy_gettext("Targets"),
        choices=CLAIM_TARGETS,
        validate_choice=False,
        widget=ListWidget(prefix_label=False),
        option_widget=CheckboxInput(),
    )


class ClaimsForm(ClientForm):
    """The claims that the client receives."""

    claim_mappings = RowsField(MappingRow, lazy_gettext("Claims"), max_rows=MAX_MAPPINGS + _EMPTY_ROWS)

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them; rows without a claim are dropped."""
        rows = [
            {
                "claim": (row["claim"] or "").strip(),
                "source": row["source"] or "",
                "targets": row["targets"] or [],
            }
            for row in self.claim_mappings.data
        ]
        return {"claim_mappings": [row for row in rows if row["claim"]]}


class AssignmentForm(PageForm):
    """Gives a user or a group a role."""

    role = select_field(lazy_gettext("Role"))
    email = StringField(
        lazy_gettext("Email address or ID of the user"), [Length(max=254)], render_kw=NO_AUTOCOMPLETE
    )
    group_id = select_field(lazy_gettext("Or a group"))

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        holder = {**identified_by(self.email.data or ""), "group_id": self.group_id.data or None}
        return {"role": self.role.data, **{name: value for name, value in holder.items() if value}}


@portal_page("/clients/<client_id>/roles", "GET", "POST")
def client_roles(context: PortalContext, client_id: str) -> PageResponse:
    """Show the roles of the client and who has them, and change which it declares."""
    found = get_client(context.actor, client_id)
    form = RolesForm(version=found.version, app_roles=[*found.app_roles, *[{}] * _EMPTY_ROWS])
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this client"), found.version):
            updated = update_client(
                context.actor, client_id, form.values(), expected_version=form.version.data
            )
            return context.done(
                f"/clients/{found.client_id}/roles", "saved" if updated.changed else "unchanged"
            )
    return _roles_page(context, client_id, form, None)


@portal_page("/clients/<client_id>/roles/assign", "POST")
def assign_client_role(context: PortalContext, client_id: str) -> PageResponse:
    """Give a user or a group a role of the client."""
    get_client(context.actor, client_id)
    form = AssignmentForm()
    if form.validate_on_submit():
        # Without a user and a group, the operation names the field of the API.
        with form.show_errors(InvalidInput, Conflict, fields={"user_id": "email"}):
            assign_app_role(context.actor, client_id, form.values())
            return context.done(f"/clients/{client_id}/roles", "role-assigned")
    return _roles_page(context, client_id, None, form)


@portal_page("/clients/<client_id>/roles/<assignment_id>/remove", "POST")
def remove_client_role(context: PortalContext, client_id: str, assignment_id: str) -> PageResponse:
    """Take a role from a user or a group."""
    get_client(context.actor, client_id)
    remove_app_role(context.actor, client_id, assignment_id)
    # What assigns it again, from the row.
    sent = {name: request.form.get(name, "")[:254] for name in ("role", "email", "group_id")}
    undo = Undo(f"/clients/{client_id}/roles/assign", "users:write", sent) if sent["role"] else None
    return context.done(f"/clients/{client_id}/roles", "role-taken", undo=undo)


@portal_page("/clients/<client_id>/claims", "GET", "POST")
def client_claims(context: PortalContext, client_id: str) -> PageResponse:
    """Show and change the claims that the client receives in addition to the standard ones."""
    found = get_client(context.actor, client_id)
    attributes = attributes_of(context.organization.settings)
    empty = {"targets": list(TARGETS)}
    rows = [*found.claim_mappings, *[empty] * _EMPTY_ROWS]
    form = ClaimsForm(version=found.version, claim_mappings=rows)
    sources = {f"{ATTRIBUTE_PREFIX}{each.key}": each.name for each in attributes}
    sources |= {"groups": gettext("Groups"), "roles": gettext("Roles in this app")}
    choices = sources | {name: name for name in STANDARD_SOURCES}
    for row in form.claim_mappings:
        unknown = row.source.data and row.source.data not in choices
        row.source.choices = choices | ({row.source.data: row.source.data} if unknown else {})
    return edit_client(context, found, "claims", form)


def _roles_page(
    context: PortalContext, client_id: str, form: RolesForm | None, assignment: AssignmentForm | None
) -> PageResponse:
    found = get_client(context.actor, client_id)
    page: Page[RoleAssignmentRecord] = Page(())
    groups: dict[str, str] = {}
    if context.actor.has_permission("users:read"):
        page = list_app_role_assignments(context.actor, client_id, context.page_request())
        if context.actor.has_permission("users:write"):
            found_groups = iterate_pages(list_groups, context.actor, context.organization.slug)
            groups = {group.public_id: group.name for group in found_groups}
    roles = form or RolesForm(
        formdata=None, version=found.version, app_roles=[*found.app_roles, *[{}] * _EMPTY_ROWS]
    )
    assign = assignment or AssignmentForm(formdata=None)
    assign.role.choices = {role["key"]: role["name"] or role["key"] for role in found.app_roles}
    assign.group_id.choices = {"": gettext("None")} | groups
    return client_page(
        context,
        found,
        "roles",
        form=assignment or roles,
        roles_form=roles,
        assign_form=assign,
        page=page,
        listing=f"/clients/{client_id}/roles",
    )
