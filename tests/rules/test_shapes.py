"""Shapes of requests: every error of a body at once, in the notation of the API, and never a converted value."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from app.rules.fields import MAX_UNKNOWN, FieldProblem, ValidationErrors
from app.rules.shapes import (
    Between,
    Items,
    OneOf,
    Rule,
    Shape,
    Text,
    Time,
    check_shape,
    create_shape,
    parse_time,
)
from tests.support.cases import each


def _not_zz(value: str) -> FieldProblem | None:
    return FieldProblem("no_zz", "Enter anything {but} zz.") if value == "zz" else None


class Part(Shape):
    """A nested object."""

    email: Annotated[str, Text(20)]
    size: Annotated[int, Between(1, 5, "metres")] | None = None


class Whole(Shape):
    """A body with every kind of field."""

    name: Annotated[str, Text(5)]
    kind: Annotated[str, OneOf(("a", "b"))] | None = None
    words: Annotated[tuple[Annotated[str, Rule(_not_zz)], ...], Items(3)] | None = None
    part: Part | None = None
    is_on: bool = False
    at: Time | None = None


def errors_of(sent: dict[str, Any], **options: Any) -> dict[str, tuple[str, str]]:
    errors = ValidationErrors()
    check_shape(errors, Whole, sent, **options)
    return {error.field: (error.code, error.message) for error in errors.errors}


def codes_of(sent: dict[str, Any], **options: Any) -> dict[str, str]:
    return {field: code for field, (code, _) in errors_of(sent, **options).items()}


def test_valid_body_has_no_errors() -> None:
    sent = {
        "name": "N",
        "kind": "a",
        "words": ["x", "y"],
        "part": {"email": "e"},
        "is_on": True,
    }
    assert errors_of(sent | {"at": "2030-01-31T12:00:00Z"}) == {}


def test_all_errors_are_reported_at_once() -> None:
    sent = {"kind": "c", "words": ["x", "zz", 3], "part": {"size": 9, "zip": 1}, "is_on": "yes", "nmae": "N"}
    assert codes_of(sent) == {
        "name": "required",
        "kind": "not_allowed",
        "words[1]": "no_zz",
        "words[2]": "wrong_type",
        "part.email": "required",
        "part.size": "out_of_range",
        "part.zip": "unknown_field",
        "is_on": "wrong_type",
        "nmae": "unknown_field",
    }


@each(
    ("field", "value", "message"),
    [
        ("name", 5, "This must be a string, not a number."),
        ("name", None, "This must be a string, not null."),
        ("is_on", 1, "This must be true or false, not a number."),
        ("is_on", None, "This must be true or false, not null."),
        ("words", "x", "This must be an array, not a string."),
        ("words", {"x": 1}, "This must be an array, not an object."),
        ("part", [], "This must be an object, not an array."),
        ("kind", "c", "This must be one of: a, b."),
        ("words", ["zz"], "Enter anything {but} zz."),
        ("words", ["a", "b", "c", "d"], "There are 4 entries, but at most 3 are allowed."),
        ("at", "2030-01-31", "Enter a time with its time zone, such as 2030-01-31T12:00:00Z (RFC 3339)."),
    ],
)
def test_message_says_how_to_fix_the_value(field: str, value: Any, message: str) -> None:
    errors = errors_of({"name": "N", field: value})
    assert [text for _, text in errors.values()] == [message]


@each("value", ["5", 5.0, True, "five"])
def test_value_of_another_type_is_never_converted(value: Any) -> None:
    assert codes_of({"name": "N", "part": {"email": "e", "size": value}}) == {"part.size": "wrong_type"}


def test_duplicate_entry_is_reported_beside_invalid_ones() -> None:
    assert codes_of({"name": "N", "words": ["x", "zz", "x"]}) == {
        "words[1]": "no_zz",
        "words[2]": "duplicate",
    }


def test_unknown_field_gets_suggestion_and_read_only_field_is_named() -> None:
    errors = errors_of(
        {"name": "N", "titel": 1, "wrds": 2, "id": 3}, synonyms={"titel": "name"}, read_only=["id"]
    )
    assert errors["titel"][1] == 'There is no such field. Did you mean "name"?'
    assert errors["wrds"][1] == 'There is no such field. Did you mean "words"?'
    assert errors["id"][0] == "read_only"


def test_number_of_unknown_fields_is_limited() -> None:
    assert len(codes_of({"name": "N"} | {f"field{number}": 1 for number in range(1000)})) == MAX_UNKNOWN


def test_null_is_required_where_a_message_says_so() -> None:
    assert errors_of({"name": None}, required={"name": "Enter a name."}) == {
        "name": ("required", "Enter a name.")
    }


def test_shape_from_record_makes_fields_optional_and_nullable() -> None:
    class Thing(Struct):
        name: Annotated[str, Text(5)]
        kind: Annotated[str, OneOf(("a", "b"))] = "a"
        id: str = ""

    new = create_shape("NewThing", Thing, required=("name",), without=("id",))
    change = create_shape("ThingChange", Thing, without=("id",), not_null=("name",))
    for shape, sent, expected in (
        (new, {"name": "N", "kind": None}, {}),
        (new, {}, {"name": "required"}),
        (new, {"name": "N", "id": "x"}, {"id": "unknown_field"}),
        (change, {}, {}),
        (change, {"name": None}, {"name": "wrong_type"}),
    ):
        errors = ValidationErrors()
        check_shape(errors, shape, sent)
        assert {error.field: error.code for error in errors.errors} == expected


@each("value", ["", "soon", "2030-01-31T12:00:00", "9999-12-31T23:59:59-12:00", 5, None])
def test_time_without_zone_or_out_of_range_is_rejected(value: Any) -> None:
    assert parse_time(value) is None


def test_json_schema_has_the_same_constraints() -> None:
    schema = Whole.model_json_schema()
    assert schema["additionalProperties"] is False and schema["required"] == ["name"]
    properties = schema["properties"]
    assert (properties["name"]["minLength"], properties["name"]["maxLength"]) == (1, 5)
    assert properties["kind"]["anyOf"][0]["enum"] == ["a", "b"]
    assert properties["words"]["anyOf"][0] | {"items": None} == {
        "type": "array",
        "items": None,
        "maxItems": 3,
        "uniqueItems": True,
    }
    assert properties["at"]["anyOf"][0]["format"] == "date-time"
