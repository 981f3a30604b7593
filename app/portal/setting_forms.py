"""The forms of settings: a field for each setting of a topic, and the texts of values and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flask import request
from msgspec import Struct
from wtforms import (
    BooleanField,
    HiddenField,
    SelectChoice,
    StringField,
    SubmitField,
    TextAreaField,
)
from wtforms.widgets import ColorInput

from app.operations.organizations.settings import SettingsRecord
from app.portal.setting_texts import CHOICE_TEXTS, CHOICE_TEXTS_BY_PATH, EMPTY_TEXTS, Topic
from app.rules.organizations.settings import put_at, value_at
from app.rules.organizations.settings_table import (
    SETTINGS,
    Boolean,
    Choice,
    Number,
    Setting,
    StringList,
    Text,
)
from app.rules.strict_json import InvalidJson, load_object
from app.web.forms import (
    NO_AUTOCOMPLETE,
    CheckboxListField,
    NumberField,
    PageForm,
    StringListField,
    VersionField,
    radio_field,
)
from app.web.languages import counted, duration, gettext, lazy_gettext, number, translate

_NONE = lazy_gettext("none")
# The part of a setting's reason that explains null in JSON means nothing on a form.
_API_HINT = re.compile(r" null means [^.]*\.")
ACCENT_COLOR = "branding.accent_color"
UNITS = (
    (86_400, lazy_gettext("days")),
    (3_600, lazy_gettext("hours")),
    (60, lazy_gettext("minutes")),
    (1, lazy_gettext("seconds")),
)
Values = dict[str, Any]


class SettingInfo(Struct, frozen=True):
    """The default of a setting, and whether the organization has changed it."""

    default: str
    is_changed: bool
    unit: str = ""


class DurationField(NumberField):
    """A number with a unit; ``data`` is in seconds."""

    unit = 0

    def process(self, formdata: Any, *args: Any, **kwargs: Any) -> None:
        """Read the unit from ``<name>.unit``."""
        unit = formdata.get(f"{self.name}.unit", "1") if formdata is not None else "1"
        self.unit = int(unit) if unit in {str(size) for size, _ in UNITS} else 1
        super().process(formdata, *args, **kwargs)

    def process_formdata(self, valuelist: list[str]) -> None:
        """Convert the number to seconds."""
        super().process_formdata(valuelist)
        if isinstance(self.data, int):
            self.data *= self.unit

    @property
    def amount(self) -> tuple[Any, int]:
        """The number in the largest unit that divides it, and that unit in seconds; other text with its own unit."""
        if not isinstance(self.data, int):
            return self.data, self.unit if self.data else UNITS[0][0]
        unit = next((size for size, _ in UNITS if self.data and self.data % size == 0), 1)
        return self.data // unit, unit

    def _value(self) -> str:
        return "" if self.data is None else str(self.amount[0])


class TopicForm(PageForm):
    """The settings of one topic. ``base`` holds the values that the form was made from, as JSON."""

    version = VersionField()
    base = HiddenField()
    save = SubmitField(lazy_gettext("Save"))
    preview = SubmitField(lazy_gettext("Preview changes"))

    def values(self, topic: Topic) -> Values:
        """Return the values by path as the operation takes them; None for an empty field."""
        return {path: self[path].data if self[path].data != "" else None for path in topic.paths}


class MergeForm(PageForm):
    """Resolves a conflict: ``mine`` holds the values that were not saved, and ``keep.<path>`` which one wins."""

    version = VersionField()
    merge = HiddenField()
    base = HiddenField()
    mine = HiddenField()


class ResetForm(PageForm):
    """Resets one setting to its default."""

    reset = HiddenField()


def topic_form(topic: Topic, view: SettingsRecord, values: Values) -> TopicForm:
    """Return the form of a topic, filled with ``values`` unless it was submitted."""
    fields = {
        path: _field(SETTINGS[path], label, view.limits.get(path, {})) for path, label in topic.labels.items()
    }
    form: TopicForm = type("TopicForm", (TopicForm,), fields)(
        data={**values, "version": view.version} if request.method != "POST" else None
    )
    changed = frozenset(view.overridden)
    for path in topic.paths:
        unit = gettext("days") if path.endswith("_days") else ""
        default = describe_value(path, SETTINGS[path].default)
        form[path].info = SettingInfo(default, path in changed, unit)
    return form


def merge_form(topic: Topic) -> MergeForm:
    """Return the form of the conflict page."""
    choices = ["theirs", "mine"]
    fields = {f"keep.{path}": radio_field(choices=choices) for path in topic.paths}
    form: MergeForm = type("MergeForm", (MergeForm,), fields)()
    return form


def values_of(topic: Topic, document: Mapping[str, Any]) -> Values:
    """Return the topic's values in an effective document, by path."""
    return {path: value_at(document, path) for path in topic.paths}


def values_from_json(topic: Topic, text: str | None) -> Values:
    """Return the values of a hidden field by path; values that this form cannot have made are ignored."""
    try:
        # A lone surrogate cannot be encoded.
        found = load_object((text or "").encode("utf-8", "replace"))
    except InvalidJson:
        return {}
    return {path: found[path] for path in topic.paths if path in found and _is_possible(path, found[path])}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by path as the nested document that the operation takes."""
    document: dict[str, Any] = {}
    for path, value in values.items():
        put_at(document, path, value)
    return document


def describe_value(path: str, value: Any) -> str:
    """Return a value as people read it."""
    setting = SETTINGS[path]
    if value is None:
        return str(EMPTY_TEXTS.get(path, _NONE))
    if isinstance(value, bool):
        return gettext("on") if value else gettext("off")
    if isinstance(setting.kind, Number) and isinstance(value, int):
        if path.endswith("_seconds"):
            return duration(value)
        return counted(value, "day") if path.endswith("_days") else number(value)
    if isinstance(value, list):
        return ", ".join(choice_label(path, entry) for entry in value) or str(EMPTY_TEXTS.get(path, _NONE))
    return choice_label(path, value)


def describe_setting(setting: Setting) -> str:
    """Return the description of a setting without what it says about null, which only the API shows."""
    return _API_HINT.sub("", translate(setting.description))


def choice_label(path: str, word: Any) -> str:
    """Return the short label of one value of a choice or a switch."""
    if isinstance(word, bool):
        return gettext("on") if word else gettext("off")
    return str(_choice(path, str(word))[0])


def _choice(path: str, word: str) -> tuple[str, str]:
    """Return label and help of a choice; other text is its own label."""
    return CHOICE_TEXTS_BY_PATH.get((path, word)) or CHOICE_TEXTS.get(word) or (word, "")


def _is_possible(path: str, value: Any) -> bool:
    kind = SETTINGS[path].kind
    if value is None or (isinstance(kind, Number) and isinstance(value, str)):
        return True
    return all(error.code != "wrong_type" for error in kind.check(path, value))


def _field(setting: Setting, label: str, limit: Mapping[str, Any]) -> Any:
    path, kind = setting.path, setting.kind
    description = describe_setting(setting)
    if description.rstrip(".") == str(label):
        description = ""
    if "allowed" in limit:
        allowed = ", ".join(choice_label(path, word) for word in limit["allowed"])
        description += " " + gettext("This instance only allows: %(allowed)s.", allowed=allowed)
    if isinstance(kind, Number):
        description = f"{description} {_range(path, kind, limit)}".strip()
    if isinstance(kind, Boolean):
        return BooleanField(label, description=description)
    if isinstance(kind, Number):
        field_class = DurationField if path.endswith("_seconds") else NumberField
        return field_class(
            label, description=description, render_kw={"inputmode": "numeric", "autocomplete": "off"}
        )
    if isinstance(kind, Choice):
        return radio_field(label, choices=_choices(setting, kind), description=description)
    if isinstance(kind, StringList):
        if isinstance(kind.item, Choice):
            return CheckboxListField(label, choices=_choices(setting, kind.item), description=description)
        description = " ".join(filter(None, (description, gettext("One per line."))))
        return StringListField(label, description=description, render_kw={"rows": 3, "spellcheck": "false"})
    if isinstance(kind, Text) and kind.multiline:
        return TextAreaField(label, description=description, render_kw={"rows": 3})
    if isinstance(kind, Text) and kind.format == "color":
        return StringField(label, widget=ColorInput(), description=description)
    return StringField(label, description=description, render_kw=NO_AUTOCOMPLETE)


def _range(path: str, kind: Number, limit: Mapping[str, Any]) -> str:
    minimum, maximum = describe_value(path, limit["min"]), describe_value(path, limit["max"])
    by_instance = (limit["min"], limit["max"]) != (kind.minimum, kind.maximum)
    return (
        gettext(
            "From %(minimum)s to %(maximum)s, as limited by this instance.", minimum=minimum, maximum=maximum
        )
        if by_instance
        else gettext("From %(minimum)s to %(maximum)s.", minimum=minimum, maximum=maximum)
    )


def _choices(setting: Setting, kind: Choice) -> list[SelectChoice]:
    default = setting.default if isinstance(setting.default, list) else [setting.default]
    choices = []
    for word in kind.choices:
        label, help_text = _choice(setting.path, word)
        choices.append(SelectChoice(word, label, {"help": help_text, "is_default": word in default}))
    return choices
