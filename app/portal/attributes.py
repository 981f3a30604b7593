"""Custom attributes: their definitions, which are a setting, and the values of a user."""

from __future__ import annotations

from typing import Any

from wtforms import BooleanField, StringField, SubmitField
from wtforms.validators import InputRequired, Length

from app.operations.organizations.settings import SettingsRecord, get_settings, update_settings
from app.operations.sign_in.actor_access import require_may_manage
from app.operations.users.user_changes import update_user
from app.operations.users.users import get_user_record
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.labels import ATTRIBUTE_EDITORS, ATTRIBUTE_TYPES
from app.rules.directory.attributes import Attribute, attributes_of
from app.rules.errors import InvalidInput, NotFound
from app.web.forms import (
    CODE,
    PageForm,
    StringListField,
    VersionField,
    attribute_data,
    attribute_fields,
    attribute_values,
    name_field,
    select_field,
    with_attributes,
)
from app.web.languages import gettext, lazy_gettext, translate

_PATH = "user_profile.attributes"


class AttributeForm(PageForm):
    """The definition of an attribute."""

    version = VersionField()
    name = name_field(lazy_gettext("Shown on the page of a user and in their account."))
    key = StringField(
        lazy_gettext("Key"),
        [InputRequired(), Length(max=40)],
        description=lazy_gettext("Used by the API, such as cost_center. You can't change it later."),
        render_kw=CODE,
    )
    type = select_field(lazy_gettext("Type"), choices=ATTRIBUTE_TYPES)
    choices = StringListField(
        lazy_gettext("Allowed values"),
        description=lazy_gettext("For texts and lists, one per line. Leave empty to allow any."),
        render_kw={"rows": 3, "spellcheck": "false"},
    )
    editable_by = select_field(
        lazy_gettext("Who can edit it"),
        choices=ATTRIBUTE_EDITORS,
        description=lazy_gettext(
            "Don’t let apps decide about permissions by an attribute that users can edit."
        ),
    )
    required = BooleanField(
        lazy_gettext("Required"),
        description=lazy_gettext("A user’s attributes can’t be saved without a value."),
    )
    scope = StringField(
        lazy_gettext("Scope"),
        [InputRequired(), Length(max=128)],
        description=lazy_gettext(
            "Clients that map the attribute to a claim receive it if they are granted this scope."
        ),
        render_kw=CODE,
    )
    remove = SubmitField()

    def values(self, key: str) -> dict[str, Any]:
        """Return the entry of the setting."""
        return {
            "key": key,
            "name": self.name.data,
            "type": self.type.data,
            "choices": self.choices.data,
            "editable_by": self.editable_by.data,
            "required": self.required.data,
            "scope": self.scope.data,
        }


@portal_page("/settings/attributes", "GET")
def attributes(context: PortalContext) -> PageResponse:
    """List the custom attributes."""
    view = get_settings(context.actor, context.organization.slug)
    return context.render(
        "portal/settings/attributes.html",
        attributes=attributes_of(view.document),
        types=ATTRIBUTE_TYPES,
        editors=ATTRIBUTE_EDITORS,
    )


@portal_page("/settings/attributes/new", "GET", "POST")
def attribute_new(context: PortalContext) -> PageResponse:
    """Add an attribute."""
    context.actor.require("settings:write")
    view = get_settings(context.actor, context.organization.slug)
    form = AttributeForm(scope="profile", version=view.version)
    if form.validate_on_submit():
        key = form.key.data or ""
        entries = [*view.document["user_profile"]["attributes"], form.values(key)]
        if _is_saved(context, form, view, entries, len(entries) - 1):
            return context.done("/settings/attributes", "saved")
    return context.render("portal/settings/attribute.html", form=form, attribute=None)


@portal_page("/settings/attributes/<key>", "GET", "POST")
def attribute_page(context: PortalContext, key: str) -> PageResponse:
    """Show and change the definition of an attribute, or remove it."""
    view = get_settings(context.actor, context.organization.slug)
    known = {attribute.key: attribute for attribute in attributes_of(view.document)}
    if key not in known:
        raise NotFound(lazy_gettext("There is no such attribute."))
    form = AttributeForm(obj=known[key], version=view.version)
    if form.is_submitted():
        context.actor.require("settings:write")
    position, entries = list(known).index(key), list(view.document["user_profile"]["attributes"])
    del form.key
    if form.is_submitted() and form.remove.data:
        del entries[position]
        if _is_saved(context, form, view, entries, position):
            return context.done("/settings/attributes", "attribute-removed")
    elif form.validate_on_submit():
        entries[position] = form.values(key)
        if _is_saved(context, form, view, entries, position):
            return context.done("/settings/attributes", "saved")
    return context.render("portal/settings/attribute.html", form=form, attribute=known[key])


@portal_page("/users/<user_id>/attributes", "GET", "POST")
def user_attributes(context: PortalContext, user_id: str) -> PageResponse:
    """Show and change the attributes of a user."""
    record = get_user_record(context.actor, user_id)
    require_may_manage(context.actor, record.user)
    defined = attributes_of(context.organization.settings)
    form = with_attributes(UserAttributesForm, defined)(
        data={"version": record.user.version, **attribute_data(defined, record.attributes)}
    )
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this user"), record.user.version):
            updated = update_user(
                context.actor,
                user_id,
                {"attributes": attribute_values(form, defined)},
                expected_version=form.version.data,
            )
            return context.done(f"/users/{user_id}", "saved" if updated.changed else "unchanged")
    return context.render(
        "portal/users/attributes.html",
        form=form,
        fields=attribute_fields(form, defined),
        user=record.user,
        user_url=context.url(f"/users/{user_id}"),
    )


class UserAttributesForm(PageForm):
    """The attributes of a user; each has a field."""

    version = VersionField()


def shown_attributes(attributes: tuple[Attribute, ...], values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value as text) of the attributes that a user has."""
    return [(each.name, _text(values[each.key])) for each in attributes if each.key in values]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return gettext("Yes") if value else gettext("No")
    return ", ".join(value) if isinstance(value, list) else str(value)


def _is_saved(
    context: PortalContext,
    form: AttributeForm,
    view: SettingsRecord,
    entries: list[dict[str, Any]],
    position: int,
) -> bool:
    """Store the definitions, or show at the fields why the one at the position is refused."""
    with form.show_edit_errors(gettext("the settings"), view.version):
        try:
            update_settings(
                context.actor,
                context.organization.slug,
                {"user_profile": {"attributes": entries}},
                expected_version=form.version.data,
            )
        except InvalidInput as error:
            form.refusal = error
            for problem in error.errors:
                # An entry of a list is shown at the list.
                name = problem.field.removeprefix(f"{_PATH}[{position}].").partition("[")[0]
                form.add_error(translate(problem.message), name)
            return False
        return True
    return False
