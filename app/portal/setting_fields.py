"""Fields of the settings forms, made from the table of settings: what is shown, and what was typed into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flask import request

from app.portal.setting_topics import Topic
from app.portal.setting_words import CHOICE_WORDS, NOTHING_WORDS, PATH_WORDS
from app.rules.organizations.settings import value_at
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
from app.web.forms import is_ticked, lines, text, ticked
from app.web.wording import duration

# What a reason says to those who send JSON means nothing on a form.
_FOR_PROGRAMS = re.compile(r" null means [^.]*\.")
UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field. ``control``: flag, seconds, number, choice, choices, lines, paragraph, color or text.

    ``value`` is what stands in it (for seconds the number of ``unit``), ``default`` and ``bounds`` are words,
    ``options`` are (word, title, whether it is the default).
    """

    path: str
    label: str
    why: str
    control: str
    value: Any
    default: str
    bounds: str
    unit: int = 1
    options: tuple[tuple[str, str, bool], ...] = ()
    is_set_here: bool = False


def field_groups(
    topic: Topic,
    values: Mapping[str, Any],
    overridden: Iterable[str],
    limits: Mapping[str, Mapping[str, Any]],
) -> list[tuple[str, list[SettingField]]]:
    """The topic's groups with their fields; ``values`` and ``limits`` by path."""
    own = frozenset(overridden)
    return [
        (
            heading,
            [
                _field(SETTINGS[path], label, values[path], path in own, limits.get(path, {}))
                for path, label in rows
            ],
        )
        for heading, rows in topic.groups
    ]


def values_of(topic: Topic, document: Mapping[str, Any]) -> Values:
    """The topic's values in an effective document, by path."""
    return {path: value_at(document, path) for path in topic.paths}


def typed(topic: Topic) -> Values:
    """What was typed, by path, as the operation wants it; None for a field left empty.

    What is no number stays the text it is, so that the operation refuses it at its field.
    """
    return {path: _typed(SETTINGS[path]) for path in topic.paths}


def base_values(topic: Topic, name: str = "base") -> Values:
    """The values that a form was made of, or those of a conflict page, from its hidden field."""
    try:
        # A lone surrogate cannot be encoded: such a form was made by hand, too.
        found = load_object(request.form.get(name, "").encode("utf-8", "replace"))
    except InvalidJson:
        return {}
    return {path: found[path] for path in topic.paths if path in found and _is_of_kind(path, found[path])}


def _is_of_kind(path: str, value: Any) -> bool:
    """Whether ``typed`` could have made the value: text in place of a number is what somebody typed."""
    kind = SETTINGS[path].kind
    if value is None or is_no_number(path, value):
        return True
    return all(error.code != "wrong_type" for error in kind.check(path, value))


def is_no_number(path: str, value: Any) -> bool:
    """Whether something else than a number was typed where one is asked for."""
    return isinstance(SETTINGS[path].kind, Number) and isinstance(value, str)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as the nested document that the operation takes."""
    document: dict[str, Any] = {}
    for path, value in values.items():
        *heads, last = path.split(".")
        node = document
        for head in heads:
            node = node.setdefault(head, {})
        node[last] = value
    return document


def in_words(path: str, value: Any) -> str:
    """The value as people read it."""
    setting = SETTINGS[path]
    if value is None:
        return NOTHING_WORDS.get(path, "none")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(setting.kind, Number) and isinstance(value, int):
        if path.endswith("_seconds"):
            return duration(value)
        return f"{value:,} days" if path.endswith("_days") else f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_words(path, str(entry)) for entry in value) or NOTHING_WORDS.get(path, "none")
    return _words(path, str(value))


def _field(
    setting: Setting, label: str, value: Any, is_set_here: bool, limit: Mapping[str, Any]
) -> SettingField:
    path, kind = setting.path, setting.kind
    control, bounds, unit = _text_control(kind), "", 1
    options: tuple[tuple[str, str, bool], ...] = ()
    if isinstance(kind, Boolean):
        control = "flag"
    elif isinstance(kind, Number):
        bounds = f"{in_words(path, limit['min'])} to {in_words(path, limit['max'])}"
        if (limit["min"], limit["max"]) != (kind.minimum, kind.maximum):
            bounds += ", as this installation allows"
        control = "seconds" if path.endswith("_seconds") else "number"
        if control == "seconds":
            value, unit = _in_units(value)
    elif isinstance(kind, Choice):
        control, options = "choice", _options(setting, kind)
    elif isinstance(kind, StringList):
        control = "lines"
        if isinstance(kind.item, Choice):
            control, options = "choices", _options(setting, kind.item)
    why = _FOR_PROGRAMS.sub("", setting.description)
    why = "" if why.rstrip(".") == label else why
    if "allowed" in limit:
        allowed = ", ".join(choice_words(path, word) for word in limit["allowed"])
        why += f" This installation allows only: {allowed}."
    return SettingField(
        path=path,
        label=label,
        why=why,
        control=control,
        value=value,
        default=in_words(path, setting.default),
        bounds=bounds,
        unit=unit,
        options=options,
        is_set_here=is_set_here,
    )


def _in_units(value: Any) -> tuple[Any, int]:
    """The seconds in the largest unit that divides them; an empty field waits for days."""
    if not isinstance(value, int):
        return value, UNITS[0][0]
    unit = next((size for size, _ in UNITS if value and value % size == 0), 1)
    return value // unit, unit


def _options(setting: Setting, kind: Choice) -> tuple[tuple[str, str, bool], ...]:
    standard = setting.default if isinstance(setting.default, list) else [setting.default]
    return tuple((word, _words(setting.path, word), word in standard) for word in kind.values)


def _text_control(kind: Any) -> str:
    if isinstance(kind, Text) and kind.multiline:
        return "paragraph"
    return "color" if isinstance(kind, Text) and kind.format == "color" else "text"


def _typed(setting: Setting) -> Any:
    path, kind = setting.path, setting.kind
    if isinstance(kind, Boolean):
        return is_ticked(path)
    if isinstance(kind, Number):
        return _number(path)
    if isinstance(kind, StringList):
        return ticked(path) if isinstance(kind.item, Choice) else lines(path)
    return text(path).replace("\r\n", "\n") or None


def _number(path: str) -> Any:
    found = text(path)
    if not found:
        return None
    if not found.isdecimal() or len(found) > 12:
        return found
    unit = text(f"{path}.unit")
    sizes = {str(size) for size, _ in UNITS}
    return int(found) * (int(unit) if unit in sizes else 1)


def choice_words(path: str, word: Any) -> str:
    """One value of a choice or a switch as people read it, in few words."""
    if isinstance(word, bool):
        return "on" if word else "off"
    return _words(path, str(word)).split(": ")[0].split("; ")[0]


def _words(path: str, word: str) -> str:
    return PATH_WORDS.get((path, word)) or CHOICE_WORDS.get(word, word)
