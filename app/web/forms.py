"""Forms of pages: the base class of the Flask-WTF forms, and fields that WTForms does not have.

Fields and validators check what a form looks like. The rules decide what a value may be, and ``PageForm.add_errors``
shows their errors at the fields. ``templates/macros/fields.html`` renders a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from flask import request
from flask_wtf import FlaskForm
from werkzeug.datastructures import CombinedMultiDict, MultiDict
from wtforms import (
    BooleanField,
    FieldList,
    Form,
    FormField,
    HiddenField,
    PasswordField,
    RadioField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.utils import unset_value
from wtforms.validators import InputRequired, Length, ValidationError
from wtforms.widgets import DateInput

from app.rules.directory.attributes import BOOLEAN, DATE, INTEGER, LIST, MAX_TEXT, Attribute
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, PreconditionFailed
from app.web.languages import gettext, lazy_gettext, translate

NO_AUTOCOMPLETE: Mapping[str, str] = {"autocomplete": "off"}
"""Attributes of a field that browsers do not complete."""
CODE: Mapping[str, str] = {**NO_AUTOCOMPLETE, "spellcheck": "false", "autocapitalize": "off"}
"""Attributes of a field for an identifier."""
# Of a list, before its field scrolls.
_MAX_ROWS = 12

_VERSION = re.compile(r"[0-9]{1,10}")
# As long as the largest number that attributes may have. Rules say which a field may have.
_MAX_DIGITS = 16
_WHOLE_NUMBER = re.compile(rf"-?[0-9]{{1,{_MAX_DIGITS}}}")
_ROW = re.compile(r"-(0|[1-9][0-9]{0,3})(?:-.*)?", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\].*")


class PageForm(FlaskForm):
    """A form of a page. Text is stripped and has Unix line endings; passwords are left as they were typed."""

    refusal: DomainError | None = None
    """The error of the operation that the form shows."""

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
        ``redirect_uris[1]`` is shown at ``redirect_uris`` and names the line. Raises an error of the service itself
        again, whose response is 503 with Retry-After, and a missing permission that is not for a value of a field.
        """
        if error.status >= 500 or (isinstance(error, Forbidden) and not error.errors):
            raise error
        self.refusal = error
        if not error.errors:
            self.add_error(translate(error.description))
        rejected = set(self.errors)
        for name, message in _field_messages(error, fields or {}):
            if name not in rejected:
                self.add_error(message, name)

    def show_errors(
        self, *kinds: type[DomainError], fields: Mapping[str, str] | None = None
    ) -> ErrorsShownInForm:
        """Run a ``with`` block, and continue after it with ``add_errors`` if it raises an error of these kinds."""
        return ErrorsShownInForm(kinds, lambda error: self.add_errors(error, fields))

    def show_edit_errors(
        self, what: str, current_version: int, *, fields: Mapping[str, str] | None = None
    ) -> ErrorsShownInForm:
        """Run a ``with`` block that saves a record, and continue after it if the operation refuses the values.

        After an edit conflict the form has the current version, so that saving again overwrites it.
        """

        def show(error: DomainError) -> None:
            if not isinstance(error, PreconditionFailed):
                self.add_errors(error, fields)
                return
            self.refusal = error
            self.add_error(
                gettext(
                    "Someone changed %(what)s after you opened the page. Check the values and save again.",
                    what=what,
                )
            )
            self["version"].data = current_version

        return ErrorsShownInForm((InvalidInput, Conflict, Forbidden, PreconditionFailed), show)

    @property
    def response_status(self) -> int:
        """The HTTP status of a page with this form: that of the refusal, 400 for other errors, or 200."""
        if self.refusal is not None:
            return self.refusal.status
        return 400 if self.errors else 200

    @property
    def summary(self) -> list[tuple[Any, str]]:
        """All errors as pairs of a field and its message; the field is None for an error of the whole form."""
        whole = [(None, message) for message in self.form_errors]
        return whole + [(field, " ".join(map(str, field.errors))) for field in self if field.errors]


class ErrorsShownInForm:
    """A ``with`` block whose errors of some kinds are shown in a form. The code after the block renders the page."""

    def __init__(self, kinds: tuple[type[DomainError], ...], show: Callable[[DomainError], None]) -> None:
        self._kinds = kinds
        self._show = show

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, self._kinds):
            return False
        self._show(error)
        return True


def clean_text(value: Any) -> Any:
    """Strip a text and give it Unix line endings; return everything else unchanged."""
    return value.strip().replace("\r\n", "\n") if isinstance(value, str) else value


# For choices that the operation checks, which says what is wrong with them.
select_field = partial(SelectField, validate_choice=False)
radio_field = partial(RadioField, validate_choice=False)


def plain_text_field(
    label: str, *, max_length: int, required: bool = False, description: str = ""
) -> StringField:
    """Return a field for a line of text, which browsers do not complete."""
    checks = [InputRequired()] if required else []
    return StringField(
        label,
        [*checks, Length(max=max_length)],
        description=description,
        render_kw=NO_AUTOCOMPLETE,
    )


def name_field(description: str = "", *, max_length: int = 100) -> StringField:
    """Return the field for the name that a record must have."""
    return plain_text_field(
        lazy_gettext("Name"), max_length=max_length, required=True, description=description
    )


class TypedConfirmationForm(PageForm):
    """Confirms a deletion: the user types the name of what is deleted."""

    typed = StringField(validators=[InputRequired()], render_kw=CODE)

    def is_confirmed(self, name: str) -> bool:
        """Return whether the form was sent with this name; otherwise show an error at the field."""
        self.typed.label.text = gettext("Type %(name)s to confirm", name=name)
        if self.validate_on_submit() and self.typed.data != name:
            self.add_error(gettext("This doesn't match. Type it exactly as shown above."), "typed")
        return self.is_submitted() and not self.errors


class StringListField(TextAreaField):
    """A text area with one value per line; ``data`` is the list of lines that are not empty.

    It is as high as its lines need, within reason.
    """

    def __call__(self, **kwargs: Any) -> Any:
        """Render the field."""
        at_least = kwargs.pop("rows", (self.render_kw or {}).get("rows", 2))
        return super().__call__(rows=max(at_least, min(len(self.data) + 1, _MAX_ROWS)), **kwargs)

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


class RowsField(FieldList):
    """A table of rows, each a form, whose number is bounded.

    WTForms creates a form for each number that it finds in the names of the fields that were sent, and fails for a
    number that it cannot read. Too many rows and names that belong to no row are an error of this field instead. A
    browser sends neither.
    """

    def __init__(self, row: type[Form], label: Any, *, max_rows: int, **kwargs: Any) -> None:
        super().__init__(FormField(row), label, **kwargs)
        self._max_rows = max_rows
        self._problems: list[str] = []

    def process(self, formdata: Any, data: Any = unset_value, extra_filters: Any = None) -> None:
        """Create the rows that were sent, at most as many as the table may have."""
        self._problems = []
        if formdata:
            formdata = self._readable(formdata)
        super().process(formdata, data, extra_filters)

    def validate(self, form: Any, extra_validators: Any = ()) -> bool:
        """Reject the table if not all that was sent could be read."""
        is_valid = super().validate(form, extra_validators)
        if not self._problems:
            return is_valid
        self.errors = list(self._problems)
        return False

    def _readable(self, formdata: Any) -> Any:
        """Return the form data without the fields that cannot be read, and note why."""
        rows: dict[str, str | None] = {}
        for name in formdata:
            if name.startswith(self.name):
                found = _ROW.fullmatch(name, len(self.name))
                rows[name] = found[1] if found else None
        foreign = [name for name, row in rows.items() if row is None and name.startswith(f"{self.name}-")]
        if foreign:
            self._problems.append(
                gettext(
                    "The field %(name)s is not part of this table. Reload the page and enter your changes again.",
                    name=repr(foreign[0][:60]),
                )
            )
        numbers = sorted({row for row in rows.values() if row is not None}, key=int)
        if len(numbers) > self._max_rows:
            self._problems.append(
                gettext(
                    "You sent %(rows)s rows, but at most %(max)s are possible. Remove some and save again.",
                    rows=len(numbers),
                    max=self._max_rows,
                )
            )
        kept = frozenset(numbers[: self._max_rows])
        dropped = {name for name, row in rows.items() if row not in kept}
        if not dropped:
            return formdata
        return MultiDict(
            (name, value) for name in formdata if name not in dropped for value in formdata.getlist(name)
        )


class NumberField(StringField):
    """A whole number; ``data`` is an int, or None when the field is empty. Other text stays as it was typed."""

    def process_formdata(self, valuelist: list[str]) -> None:
        """Read a number, which may be negative."""
        text = valuelist[0].strip() if valuelist else ""
        self.data: Any = int(text) if _WHOLE_NUMBER.fullmatch(text) else text or None

    def pre_validate(self, form: Any) -> None:
        """Reject text that is not a number."""
        if isinstance(self.data, str):
            raise ValidationError(gettext("Enter a whole number, such as 30."))

    def _value(self) -> str:
        return "" if self.data is None else str(self.data)


class EmailField(StringField):
    """An email, with the keyboard for it but not the type: browsers reject letters like ü before its @ (RFC 6531)."""

    def __init__(self, *arguments: Any, render_kw: Mapping[str, Any] = {}, **options: Any) -> None:
        kept = {"inputmode": "email", "autocapitalize": "none", "spellcheck": "false"}
        super().__init__(*arguments, render_kw={**kept, **render_kw}, **options)


class VersionField(HiddenField):
    """The version of the record that the form was made from; ``data`` is None when it cannot be one."""

    def process_formdata(self, valuelist: list[str]) -> None:
        """Read a version number."""
        found = _VERSION.fullmatch(valuelist[0].strip()) if valuelist else None
        self.data: Any = int(found[0]) if found else None


def _field_messages(error: DomainError, fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (field of the form, translated message) for each error; ``redirect_uris[1]`` becomes a line number.

    ``fields`` may also map one entry to another: ``{"members[3]": "guests[1]"}``.
    """
    for problem in error.errors:
        field = fields.get(problem.field, problem.field)
        index = _INDEX.search(field)
        name = _INDEX.sub("", field)
        message = translate(problem.message)
        if index:
            message = gettext("Line %(number)s: %(message)s", number=int(index[1]) + 1, message=message)
        yield fields.get(name, name), message


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
        # Without inputmode: the keyboard for numbers has no minus sign on some phones.
        return NumberField(label, render_kw={"autocomplete": "off", "maxlength": _MAX_DIGITS + 1})
    if attribute.type == DATE:
        return StringField(label, widget=DateInput())
    if attribute.type == LIST:
        if attribute.choices:
            return CheckboxListField(label, choices=list(attribute.choices))
        return StringListField(label, description=translate("One per line."), render_kw={"rows": 3})
    if attribute.choices:
        return select_field(label, choices=["", *attribute.choices])
    return StringField(label, render_kw={"autocomplete": "off", "maxlength": MAX_TEXT})
