"""Fields of forms for the custom attributes of an organization's users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from wtforms import BooleanField, SelectField, StringField
from wtforms.widgets import DateInput

from app.rules.directory.attributes import BOOLEAN, DATE, INTEGER, LIST, MAX_TEXT, Attribute
from app.web.forms import CheckboxListField, NumberField, PageForm, StringListField
from app.web.languages import translate

_PREFIX = "attributes."
F = TypeVar("F", bound=PageForm)


def with_attributes(form: type[F], attributes: Iterable[Attribute]) -> type[F]:
    """Return the form with a field for each attribute, named ``attributes.<key>``."""
    fields = {f"{_PREFIX}{attribute.key}": _field(attribute) for attribute in attributes}
    made: type[F] = type(form.__name__, (form,), fields)
    return made


def attribute_data(attributes: Iterable[Attribute], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by the names of their fields."""
    return {f"{_PREFIX}{attribute.key}": values.get(attribute.key) for attribute in attributes}


def attribute_values(form: PageForm, attributes: Iterable[Attribute]) -> dict[str, Any]:
    """Return the values of the form by key, as operations expect them."""
    return {attribute.key: form[f"{_PREFIX}{attribute.key}"].data for attribute in attributes}


def attribute_fields(form: PageForm, attributes: Iterable[Attribute]) -> list[Any]:
    """Return the fields of the attributes in their order."""
    return [form[f"{_PREFIX}{attribute.key}"] for attribute in attributes]


def _field(attribute: Attribute) -> Any:
    label = attribute.name
    if attribute.type == BOOLEAN:
        return BooleanField(label)
    if attribute.type == INTEGER:
        return NumberField(label, render_kw={"inputmode": "numeric", "autocomplete": "off", "maxlength": 12})
    if attribute.type == DATE:
        return StringField(label, widget=DateInput())
    if attribute.type == LIST:
        if attribute.choices:
            return CheckboxListField(label, choices=list(attribute.choices))
        return StringListField(label, description=translate("One per line."), render_kw={"rows": 3})
    if attribute.choices:
        return SelectField(label, choices=["", *attribute.choices], validate_choice=False)
    return StringField(label, render_kw={"autocomplete": "off", "maxlength": MAX_TEXT})
