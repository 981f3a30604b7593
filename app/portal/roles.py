"""Roles of an organization and their permissions, and its administrators."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import request
from wtforms import SelectChoice, StringField, SubmitField
from wtforms.validators import InputRequired, Length

from app.operations.organizations.administrators import (
    add_administrator,
    count_role_holders,
    get_administrator,
    list_administrators,
    list_role_holders,
    remove_administrator,
)
from app.operations.organizations.roles import (
    RoleRecord,
    create_role,
    delete_role,
    get_role,
    list_roles,
    update_role,
)
from app.operations.sign_in.actor_access import can_manage_role, require_role_permissions
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store.rows import MAX_LIMIT, PageRequest
from app.operations.users.invitations import (
    NewInvitation,
    create_invitation,
    list_invitations,
    revoke_invitation,
)
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.portal.labels import PERMISSION_GROUPS
from app.portal.users import identified_by
from app.rules.directory.permissions import (
    ADMIN,
    BUILT_IN_ROLES,
    MEMBER,
    ORGANIZATION_PERMISSIONS,
    PERMISSIONS,
    effective_roles,
)
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyRequests
from app.web.forms import (
    CODE,
    NO_AUTOCOMPLETE,
    CheckboxListField,
    PageForm,
    StringListField,
    VersionField,
    name_field,
    plain_text_field,
    radio_field,
)
from app.web.languages import gettext, lazy_gettext, translate


class RoleForm(PageForm):
    """A role; built-in roles can only be narrowed."""

    version = VersionField()
    key = StringField(
        lazy_gettext("Key"),
        [InputRequired(), Length(max=40)],
        description=lazy_gettext(
            "Used by the API: lowercase letters, digits, _ and -. It can't be changed later."
        ),
        render_kw=CODE,
    )
    name = name_field(max_length=60)
    description = plain_text_field(lazy_gettext("Description"), max_length=300)
    permissions = CheckboxListField(
        lazy_gettext("Permissions"),
        description=lazy_gettext("You can only grant permissions that you have yourself."),
    )
    more_permissions = StringListField(
        lazy_gettext("Custom permissions"),
        description=lazy_gettext(
            "Permissions of your own applications, one per line, such as invoices:approve. They have no"
            " effect in Gatehouse."
        ),
        render_kw={"rows": 2, "spellcheck": "false"},
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operations take them."""
        return {
            "name": self.name.data,
            "description": self.description.data or None,
            "permissions": list(dict.fromkeys([*self.permissions.data, *self.more_permissions.data])),
        }


class RemoveRoleForm(PageForm):
    """Removes a role, or resets a built-in one to its default."""

    version = VersionField()
    remove = SubmitField()


@portal_page("/settings/permissions", "GET")
def roles(context: PortalContext) -> PageResponse:
    """List the roles and what each of them permits."""
    return context.render("portal/settings/roles.html", **_matrix(context))


def _matrix(context: PortalContext) -> dict[str, Any]:
    """Return the roles, the number of users of each, and by noun which of them have each permission.

    The cell of a role is "all", "own" for a permission limited to what the user owns, or nothing.
    """
    records = list_roles(context.actor)
    nouns: dict[str, list[tuple[str, list[str]]]] = {}
    for name, title in PERMISSIONS.items():
        cells = [
            "all"
            if name in record.role.permissions
            else "own"
            if f"{name}:own" in record.role.permissions
            else ""
            for record in records
        ]
        if any(cells):
            noun = name.split(":")[0]
            nouns.setdefault(str(PERMISSION_GROUPS[noun]), []).append((title, cells))
    reads_admins = context.actor.has_permission("admins:read")
    return {
        "records": records,
        "matrix": list(nouns.items()),
        "holders": count_role_holders(context.actor) if reads_admins else {},
        "admin": ADMIN,
    }


@portal_page("/settings/permissions/new", "GET", "POST")
def new_role(context: PortalContext) -> PageResponse:
    """Add a custom role."""
    context.actor.require("roles:write")
    # Before the user fills in the form.
    require_fresh_user_sign_in(context.actor)
    form = RoleForm()
    del form.version
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, Forbidden, fields={"id": "key"}):
            create_role(context.actor, {"id": form.key.data, **form.values()})
            return context.done("/settings/permissions", "saved")
    return _page(context, None, form)


@portal_page("/settings/permissions/<role>", "GET", "POST")
def role(context: PortalContext, role: str) -> PageResponse:
    """Show and change one role; remove a custom role or reset a built-in one."""
    record = get_role(context.actor, role)
    if role == ADMIN:
        raise NotFound(lazy_gettext("There is no such role."))
    remove_form = RemoveRoleForm(version=record.version)
    if remove_form.validate_on_submit() and remove_form.remove.data:
        return _remove(context, record, remove_form)
    form = _form(record)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this role"), record.version):
            update_role(context.actor, role, form.values(), expected_version=form.version.data)
            return context.done("/settings/permissions", "saved")
    return _page(context, record, form, remove_form)


def _remove(context: PortalContext, record: RoleRecord, remove_form: RemoveRoleForm) -> PageResponse:
    version = remove_form.version.data
    form = _form(record)
    form.process(data=_stored(record))
    with form.show_edit_errors(gettext("this role"), record.version):
        if record.is_built_in:
            reset = dict.fromkeys(("name", "description", "permissions"))
            update_role(context.actor, record.key, reset, expected_version=version)
            return context.done("/settings/permissions", "reset")
        delete_role(context.actor, record.key, expected_version=version)
        return context.done("/settings/permissions", "role-removed")
    return _page(context, record, form, RemoveRoleForm(formdata=None, version=record.version))


def _stored(record: RoleRecord) -> dict[str, Any]:
    listed = {permission for _, rows in _permission_groups(record.key) for permission, _, _ in rows}
    return {
        "version": record.version,
        "name": record.role.name,
        "description": record.role.description,
        "permissions": record.role.permissions,
        "more_permissions": [name for name in record.role.permissions if name not in listed],
    }


def _form(record: RoleRecord) -> RoleForm:
    form = RoleForm(data=_stored(record))
    del form.key
    if record.is_built_in:
        form.permissions.description = gettext(
            "You can remove permissions from a built-in role. To grant more, add a custom role."
        )
    return form


def _permission_groups(key: str | None) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the permissions by noun, as (permission, title, whether it is limited to the actor's own objects)."""
    offered = (
        frozenset(BUILT_IN_ROLES[key].permissions)
        if key is not None and key in BUILT_IN_ROLES
        else ORGANIZATION_PERMISSIONS
    )
    groups: dict[str, list[tuple[str, str, bool]]] = {}
    for name, title in PERMISSIONS.items():
        noun = name.split(":")[0]
        noun = str(PERMISSION_GROUPS[noun])
        for permission, is_own in ((name, False), (f"{name}:own", True)):
            if permission in offered:
                groups.setdefault(noun, []).append((permission, title, is_own))
    return list(groups.items())


def _page(
    context: PortalContext,
    record: RoleRecord | None,
    form: RoleForm,
    remove_form: RemoveRoleForm | None = None,
) -> PageResponse:
    key = record.key if record else None
    return context.render(
        "portal/settings/role.html",
        form=form,
        remove_form=remove_form,
        key=key,
        is_built_in=record is not None and record.is_built_in,
        again_url=context.sign_in_again_url() if context.actor.has_permission("roles:write") else None,
        groups=_permission_groups(key),
        holders=list_role_holders(context.actor, key)
        if key and context.actor.has_permission("admins:read")
        else None,
    )


class InvitationForm(PageForm):
    """Invites a user."""

    email = StringField(
        lazy_gettext("Email"),
        [InputRequired()],
        description=lazy_gettext(
            "They receive an invitation by email. If no mail server is configured, you get a link to share."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )
    name = plain_text_field(
        lazy_gettext("Name"), max_length=100, description=lazy_gettext("Optional. Used in the invitation.")
    )


class AdministratorForm(InvitationForm):
    """Adds an administrator, or invites one."""

    email = StringField(
        lazy_gettext("Email"),
        [InputRequired()],
        description=lazy_gettext(
            "Existing users get the role immediately. Anyone else receives an invitation by email. If no"
            " mail server is configured, you get a link to share. You can also enter a user ID (usr_…)."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )
    role = radio_field(lazy_gettext("Role"))


@portal_page("/administrators", "GET")
def administrators(context: PortalContext) -> PageResponse:
    """List the administrators, their open invitations, and what each role permits."""
    slug = context.organization.slug
    page = list_administrators(context.actor, slug, context.page_request())
    return context.render(
        "portal/administrators/list.html",
        page=page,
        roles=effective_roles(context.organization.settings),
        may_remove=partial(can_manage_role, context.actor, context.organization),
        invitations=list_invitations(context.actor, slug, PageRequest(MAX_LIMIT), of_members=False).items,
        **(_matrix(context) if context.actor.has_permission("roles:read") else {"matrix": ()}),
    )


@portal_page("/administrators/new", "GET", "POST")
def new_administrator(context: PortalContext) -> PageResponse:
    """Add a known user at once, or invite an unknown one: the list shows the link once."""
    # The list shows the link of an invitation once.
    context.actor.require("admins:read")
    context.actor.require("admins:write")
    # Before the user fills in the form.
    require_fresh_user_sign_in(context.actor)
    roles = effective_roles(context.organization.settings)
    form = AdministratorForm(email=request.args.get("email", ""), role=request.args.get("role", "admin"))
    form.role.choices = [
        SelectChoice(key, translate(role.name), {"help": translate(role.description or "")})
        for key, role in roles.items()
        if key != MEMBER
    ]
    if form.validate_on_submit():
        with form.show_errors(
            InvalidInput, Conflict, Forbidden, TooManyRequests, fields={"user_id": "email"}
        ):
            added = add_administrator(
                context.actor,
                context.organization.slug,
                **identified_by(form.email.data),
                name=form.name.data or None,
                role=form.role.data or "admin",
            )
            if added.invitation is None:
                return context.done("/administrators", "administrator-added")
            return _invited(context, added.invitation)
    words: dict[str, Any] = {"title": gettext("Add an administrator"), "submit": gettext("Add administrator")}
    listed = (gettext("Team and roles"), "/administrators")
    return context.render("portal/administrators/new.html", form=form, listed=listed, **words)


@portal_page("/users/invite", "GET", "POST")
def invite_user(context: PortalContext) -> PageResponse:
    """Invite someone as an ordinary user; the list of users shows the link once."""
    # The list shows the link of the invitation once.
    context.actor.require("users:read")
    context.actor.require("admins:write")
    form = InvitationForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, TooManyRequests):
            slug, name = context.organization.slug, form.name.data or ""
            return _invited(context, create_invitation(context.actor, slug, email=form.email.data, name=name))
    words: dict[str, Any] = {"title": gettext("Invite user"), "submit": gettext("Invite user")}
    return context.render(
        "portal/administrators/new.html", form=form, listed=(gettext("Users"), "/users"), **words
    )


def _invited(context: PortalContext, new: NewInvitation) -> PageResponse:
    invitation = new.invitation
    roles = effective_roles(context.organization.settings)
    role = translate(roles[invitation.role].name) if invitation.role in roles else invitation.role
    return context.done(
        "/users" if invitation.role == MEMBER else "/administrators",
        kind="invitation",
        name=invitation.email,
        link=new.link,
        role=None if invitation.role == MEMBER else role,
        expires_at=invitation.expires_at,
    )


@portal_page("/administrators/<admin_id>/remove", "GET", "POST")
def remove(context: PortalContext, admin_id: str) -> PageResponse:
    """Confirm and remove an administrator's role."""
    context.actor.require("admins:write")
    slug = context.organization.slug
    admin = get_administrator(context.actor, slug, admin_id)
    require_role_permissions(context.actor, context.organization, admin.role)
    is_self = admin.user_id == context.actor.user_id
    roles = effective_roles(context.organization.settings)
    role = translate(roles[admin.role].name) if admin.role in roles else admin.role
    impact = (
        gettext("You lose the role %(role)s immediately.", role=role)
        if is_self
        else gettext("%(email)s loses the role %(role)s immediately.", email=admin.email, role=role),
        gettext("The account and the clients registered with it stay."),
    )
    note = gettext("This is your own role. You can't give it back to yourself.") if is_self else ""
    return context.confirm_change(
        Confirmation(
            gettext("Remove %(name)s?", name=admin.name or admin.email),
            gettext("Remove administrator"),
            ((gettext("Team and roles"), "/administrators"),),
            impact,
            note,
        ),
        lambda: remove_administrator(context.actor, slug, admin_id),
        "" if is_self else "/administrators",
        "administrator-removed",
    )


@portal_page("/administrators/invitations/<invitation_id>/revoke", "POST")
def revoke_administrator_invitation(context: PortalContext, invitation_id: str) -> PageResponse:
    """Revoke an invitation of an administrator or user; its link stops working."""
    revoked = revoke_invitation(context.actor, context.organization.slug, invitation_id)
    return context.done("/users" if revoked.role == MEMBER else "/administrators", "invitation-revoked")
