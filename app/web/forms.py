"""Forms of pages: the base class of the Flask-WTF forms, and fields that WTForms does not have.

Fields and validators check what a form looks like. The rules decide what a value may be, and ``PageForm.add_errors``
shows their errors at the fields. ``templates/macros/fields.html`` renders a field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flask import request
from flask_wtf import FlaskForm
from werkzeug.datastructures import CombinedMultiDict
from wtforms import HiddenField, PasswordField, SelectMultipleField, StringField, TextAreaField
from wtforms.validators import ValidationError

from app.rules.errors import DomainError
from app.web.languages import translate

_VERSION = re.compile(r"[0-9]{1,10}")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,12}")
_INDEX = re.compile(r"\[(\d+)\].*")


class PageForm(FlaskForm):
    """A form of a page. Text is stripped and has Unix line endings; passwords are left as they were typed."""

    class Meta(FlaskForm.Meta):
        """Settings that all forms of pages share."""

        def bind_field(self, form: Any, unbound_field: Any, options: dict[str, Any]) -> Any:
            """Add the filter for text to every text field."""
            field = super().bind_field(form, unbound_field, options)
            if isinstance(field, StringField) and not isinstance(field, PasswordField):
                field.filters = (clean_text, *field.filters)
            return field

    def __init__(self, formdata: Any = None, **kwargs: Any) -> None:
        # Flask-WTF would also accept a JSON body in place of a form.
        if formdata is None and self.is_submitted():
            formdata = CombinedMultiDict([request.files, request.form])
        super().__init__(formdata=formdata, **kwargs)

    def add_error(self, message: str, field: str | None = None) -> None:
        """Show a message at the field, or above the form for None or a field that this form does not have."""
        if field is None or field not in self:
            self.form_errors.append(message)
        else:
            self[field].errors = [*self[field].errors, message]

    def add_errors(self, error: DomainError, fields: Mapping[str, str] | None = None) -> None:
        """Show the errors of an operation at their fields, and those of no field above the form.

        A field that the form itself has rejected keeps its own message.
        ``fields`` maps a field of the operation to a field of the form where the names differ.
        ``redirect_uris[1]`` is shown at ``redirect_uris`` and names the line.
        """
        if not error.errors:
            self.add_error(translate(error.description))
        rejected = set(self.errors)
        for problem in error.errors:
            index = _INDEX.search(problem.field)
            name = _INDEX.sub("", problem.field)
            name = (fields or {}).get(name, name)
            if name in rejected:
                continue
            message = translate(problem.message)
            if index:
                message = f"Line {int(index[1]) + 1}: {message}"
            self.add_error(message, name)

    @property
    def summary(self) -> list[tuple[Any, str]]:
        """All errors as pairs of a field and its message; the field is None for an error of the whole form."""
        whole = [(None, message) for message in self.form_errors]
        return whole + [(field, " ".join(map(str, field.errors))) for field in self if field.errors]


def clean_text(value: Any) -> Any:
    """Strip a text and give it Unix line endings; return everything else unchanged."""
    return value.strip().replace("\r\n", "\n") if isinstance(value, str) else value


class StringListField(TextAreaField):
    """A text area with one value per line; ``data`` is the list of lines that are not empty."""

    def process_data(self, value: Iterable[str] | None) -> None:
        """Copy the values."""
        self.data: Any = list(value or ())

    def process_formdata(self, valuelist: list[str]) -> None:
        """Split the text into lines."""
        text = valuelist[0] if valuelist else ""
        self.data = [line.strip() for line in text.splitlines() if line.strip()]

    def _value(self) -> str:
        return "\n".join(self.data or ())


class CheckboxListField(SelectMultipleField):
    """Several checkboxes under one legend; ``data`` is the list of checked values, each once.

    A choice may be ``SelectChoice(value, title, {"help": one sentence})``. Values that are no choice are passed on, so
    that the rules can name the right ones.
    """

    def __init__(self, label: Any = None, validators: Any = None, **kwargs: Any) -> None:
        super().__init__(label, validators, **{"validate_choice": False, "choices": [], **kwargs})

    def process_data(self, value: Iterable[str] | None) -> None:
        """Copy the values."""
        self.data: Any = list(value or ())

    def process_formdata(self, valuelist: Iterable[str]) -> None:
        """Keep each value once, in its order."""
        self.data = list(dict.fromkeys(valuelist))


class NumberField(StringField):
    """A whole number; ``data`` is an int, or None when the field is empty. Other text stays as it was typed."""

    def process_formdata(self, valuelist: list[str]) -> None:
        """Read a number of up to twelve digits."""
        text = valuelist[0].strip() if valuelist else ""
        self.data: Any = int(text) if _WHOLE_NUMBER.fullmatch(text) else text or None

    def pre_validate(self, form: Any) -> None:
        """Reject text that is not a number."""
        if isinstance(self.data, str):
            raise ValidationError("Enter a whole number, such as 30.")

    def _value(self) -> str:
        return "" if self.data is None else str(self.data)


class VersionField(HiddenField):
    """The version of the record that the form was made from; ``data`` is None when it cannot be one."""

    def process_formdata(self, valuelist: list[str]) -> None:
        """Read a version number."""
        found = _VERSION.fullmatch(valuelist[0].strip()) if valuelist else None
        self.data: Any = int(found[0]) if found else None
