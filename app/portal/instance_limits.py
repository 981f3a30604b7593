"""Instance limits: bounds that root's administrators set for the settings of every organization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtforms import SubmitField

from app.operations.organizations.instance_limits import (
    InstanceLimitsRecord,
    UpdatedInstanceLimits,
    get_instance_limits,
    update_instance_limits,
)
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.setting_forms import choice_label, describe_setting, describe_value
from app.portal.setting_texts import SETTING_LABELS, TOPICS
from app.rules.errors import NotFound
from app.rules.organizations.instance_limits import BOUNDABLE, allowed_values
from app.rules.organizations.organizations import ROOT_SLUG
from app.rules.organizations.settings_table import SETTINGS
from app.web.forms import CheckboxListField, NumberField, PageForm, VersionField
from app.web.languages import gettext, lazy_gettext, number

_NUMBER = {"autocomplete": "off", "inputmode": "numeric"}


class LimitForm(PageForm):
    """The limit of one setting: a range for a number, the allowed values for a choice."""

    version = VersionField()
    min = NumberField(lazy_gettext("Minimum"), render_kw=_NUMBER)
    max = NumberField(lazy_gettext("Maximum"), render_kw=_NUMBER)
    allowed = CheckboxListField(
        lazy_gettext("Values organizations can choose"),
        description=lazy_gettext("Organizations that chose another value use the first allowed one."),
    )
    save = SubmitField(lazy_gettext("Save"))
    preview = SubmitField(lazy_gettext("Preview changes"))
    remove = SubmitField(lazy_gettext("Remove limit"))

    def limit(self, setting: str) -> dict[str, Any] | None:
        """Return the limit as the operation takes it, or None for no limit."""
        choices = allowed_values(setting)
        if choices:
            allowed = [choice for choice in choices if _key(choice) in self.allowed.data]
            return None if len(allowed) == len(choices) else {"allowed": allowed}
        limit = {"min": self.min.data, "max": self.max.data}
        return {name: value for name, value in limit.items() if value is not None} or None


@portal_page("/instance-limits", "GET")
def instance_limits(context: PortalContext) -> PageResponse:
    """List every setting that can be limited, by topic, with its limit."""
    view = _limits(context)
    groups = [
        (
            f"{topic.title}: {heading}" if heading != topic.title else heading,
            key,
            [(path, label, _describe(path, view.bounds.get(path))) for path, label in limited],
        )
        for key, topic in TOPICS.items()
        for heading, labels in topic.groups.items()
        if (limited := [(path, label) for path, label in labels.items() if path in BOUNDABLE])
    ]
    return context.render("portal/instance_limits/list.html", groups=groups, view=view)


@portal_page("/instance-limits/<setting>", "GET", "POST")
def instance_limit(context: PortalContext, setting: str) -> PageResponse:
    """Show one setting's limit; preview, save or remove it."""
    view = _limits(context)
    if setting not in BOUNDABLE:
        raise NotFound(lazy_gettext("This page does not exist."))
    form = _form(setting, view)
    previewed: UpdatedInstanceLimits | None = None
    if form.is_submitted():
        # The operation runs in any case, so that all errors are shown at once.
        form.validate()
        limit = None if form.remove.data else form.limit(setting)
        fields = {f"{setting}.{name}": name for name in ("min", "max", "allowed")}
        fields[setting] = "allowed" if allowed_values(setting) else "max"
        with form.show_edit_errors(gettext("the limits"), view.version, fields=fields):
            if form.preview.data:
                previewed = update_instance_limits(context.actor, {setting: limit}, dry_run=True)
            else:
                update_instance_limits(context.actor, {setting: limit}, expected_version=form.version.data)
                return context.done("/instance-limits", "saved")
    return context.render(
        "portal/instance_limits/limit.html",
        form=form,
        path=setting,
        label=SETTING_LABELS[setting],
        topic=next(topic for topic in TOPICS.values() if setting in topic.paths),
        why=describe_setting(SETTINGS[setting]),
        default=describe_value(setting, SETTINGS[setting].default),
        current=_describe(setting, view.bounds.get(setting)),
        is_choice=bool(allowed_values(setting)),
        previewed=previewed,
    )


def _limits(context: PortalContext) -> InstanceLimitsRecord:
    # The portal decides which pages exist; the operation decides who may see them.
    if context.organization.slug != ROOT_SLUG:
        raise NotFound(lazy_gettext("This page does not exist."))
    return get_instance_limits(context.actor)


def _form(setting: str, view: InstanceLimitsRecord) -> LimitForm:
    limit = view.bounds.get(setting) or {}
    choices = allowed_values(setting)
    form = LimitForm(
        version=view.version,
        min=limit.get("min"),
        max=limit.get("max"),
        allowed=[_key(choice) for choice in limit.get("allowed", choices)],
    )
    form.allowed.choices = {_key(choice): choice_label(setting, choice) for choice in choices}
    kind = SETTINGS[setting].kind
    least = _number(setting, getattr(kind, "minimum", None))
    most = _number(setting, getattr(kind, "maximum", None))
    if setting.endswith("_seconds"):
        form.min.description = gettext("In seconds. At least %(least)s.", least=least)
        form.max.description = gettext("In seconds. At most %(most)s.", most=most)
    else:
        form.min.description = gettext("At least %(least)s.", least=least)
        form.max.description = gettext("At most %(most)s.", most=most)
    return form


def _key(choice: Any) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def _number(setting: str, value: int | None) -> str:
    """Return a number as it is typed, and how people read it where that differs: ``86400 (1 day)``."""
    if value is None:
        return ""
    text = describe_value(setting, value)
    return str(value) if text == number(value) else f"{value} ({text})"


def _describe(setting: str, limit: Mapping[str, Any] | None) -> str | None:
    if limit is None:
        return None
    if "allowed" in limit:
        return gettext(
            "only %(values)s", values=", ".join(choice_label(setting, choice) for choice in limit["allowed"])
        )
    bounds = {name: describe_value(setting, value) for name, value in limit.items()}
    if len(bounds) == 2:
        return gettext("at least %(min)s and at most %(max)s", **bounds)
    return gettext("at least %(min)s", **bounds) if "min" in bounds else gettext("at most %(max)s", **bounds)
