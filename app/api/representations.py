"""Representations: typed models of the JSON that the API returns, and of its description in the OpenAPI document."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from app.rules.identifiers import public_id
from app.rules.organizations.organizations import SLUG_PATTERN
from app.rules.shapes import ClientId as ClientIdCheck
from app.rules.shapes import PublicId, SchemaOnly, described, rfc3339
from app.web.bearer import ApiContext

SLUG_KEYWORDS = {"minLength": 3, "maxLength": 40, "pattern": SLUG_PATTERN}
Slug = Annotated[
    str,
    SchemaOnly(**SLUG_KEYWORDS),
    described("The permanent ID of an organization, as in URLs."),
]
ClientId = Annotated[str, ClientIdCheck()]
UserId = Annotated[str, PublicId("usr", "user")]
CredentialId = Annotated[str, PublicId("sec", "credential")]
Count = Annotated[int, SchemaOnly(minimum=0)]
CappedCount = Annotated[int, SchemaOnly(minimum=0, maximum=1000), described("1000 means 1000 or more.")]
Url = Annotated[str, SchemaOnly(format="uri")]
true = Literal[True]
# Fields of many representations.
CreatedAt = Annotated[datetime, described("When it was created.")]
CreatedBy = Annotated[
    str | None,
    described(
        "The email address or name of the user or client who created it, at that time, or the ID of a user who was "
        "deleted since. Null if it is not known."
    ),
]
UpdatedAt = Annotated[datetime, described("When it was last changed.")]
ClientName = Annotated[str, described("The display name of the client.")]
UserEmail = Annotated[str, described("The email address of the user.")]
Deleted = Annotated[true, described("Always true.")]


class Source:
    """The source of a field that is not the record's attribute of the same name.

    It is the path of an attribute, such as ``Source("user.name")``, or a function of the record.
    """

    def __init__(self, source: str | Callable[[Any], Any]) -> None:
        self.read: Callable[[Any], Any] = attrgetter(source) if isinstance(source, str) else source


def _owner_of(record: Any) -> str | None:
    return None if record.owner_id is None else public_id("usr", record.owner_id)


OwnerId = Annotated[
    str | None,
    Source(_owner_of),
    described(
        "`usr_…`, the user who manages it with a permission that ends in `:own`: at first the one who created it. They "
        "may have been deleted. Null if it has no owner."
    ),
]


def optional() -> Any:
    """Return the default of a field that is not always present. It is never read from the record."""
    return Field(default=None)


class Representation(BaseModel):
    """Base of the models of responses. A field with a default may be absent."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @classmethod
    def to_json(cls, record: Any, **values: Any) -> dict[str, Any]:
        """Return the JSON object that represents a record; ``values`` are fields that it does not have.

        Records are not validated again: they come from the database by way of an operation.
        """
        shown = {name: get(record) for name, get in _getters(cls) if name not in values}
        shown |= {name: _json_value(value) for name, value in values.items()}
        return shown

    @classmethod
    def shown_in(cls, context: ApiContext, record: Any, **values: Any) -> dict[str, Any]:
        """Return the JSON object that represents a record in the response to a request.

        A field ``organization_id`` without a Source is the organization of the request.
        """
        field = cls.model_fields.get("organization_id")
        if field is not None and not any(isinstance(item, Source) for item in field.metadata):
            values = {"organization_id": context.organization.slug, **values}
        return cls.to_json(record, **values)


def fields_of(name: str, source: type, without: Collection[str] = ()) -> Any:
    """Return a base model with the fields of a record, except those named in ``without``."""
    hints = get_type_hints(source, include_extras=True)
    fields: dict[str, Any] = {field: (hint, ...) for field, hint in hints.items() if field not in without}
    return create_model(name, __base__=Representation, **fields)


@functools.cache
def _getters(model: type[Representation]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple(
        (name, _getter(name, field.metadata, field.annotation))
        for name, field in model.model_fields.items()
        if field.is_required()
    )


def _getter(name: str, metadata: list[Any], annotation: Any) -> Callable[[Any], Any]:
    read = next((item.read for item in metadata if isinstance(item, Source)), attrgetter(name))
    nested = _nested_model(annotation)
    if _is_plain(annotation):
        return read
    if datetime in (annotation, *get_args(annotation)):
        return lambda record: rfc3339(read(record))
    if nested is None:
        return lambda record: _json_value(read(record))

    def get(record: Any) -> Any:
        value = read(record)
        if isinstance(value, (list, tuple)):
            return [show(item) for item in value]
        return show(value)

    def show(value: Any) -> Any:
        return _json_value(value) if value is None or isinstance(value, Mapping) else nested.to_json(value)

    return get


def _is_plain(annotation: Any) -> bool:
    """Return whether values of this type are JSON as they are: text, numbers, truth values, none and lists of them."""
    kind = get_origin(annotation)
    if kind is Annotated:
        return _is_plain(get_args(annotation)[0])
    if kind in (list, tuple, Union, UnionType):
        return all(part is ... or _is_plain(part) for part in get_args(annotation))
    return kind is Literal or annotation in (str, int, bool, None, NoneType)


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _nested_model(annotation: Any) -> type[Representation] | None:
    if isinstance(annotation, type) and issubclass(annotation, Representation):
        return annotation
    return next((found for part in get_args(annotation) if (found := _nested_model(part))), None)
