"""The database itself refuses a row that names another organization's row (TN-4)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Boolean, Column, ForeignKeyConstraint, Integer, LargeBinary, Table, insert
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models import Base
from app.models.base import Digest, Identifier, Json, Sealed, UtcDateTime, Uuid
from app.rules.identifiers import new_id
from tests.factories import Factory
from tests.support.cases import each

FENCES = [
    pytest.param(table, key, id=f"{table.name}.{key.column_keys[-1]}")
    for table in Base.metadata.sorted_tables
    for key in sorted(table.foreign_key_constraints, key=lambda key: list(key.column_keys))
    if key.column_keys[0] == "organization_id"
]


def value_for(column: Column[Any]) -> Any:
    """Return a valid value of the column's type."""
    kind = column.type
    if isinstance(kind, Uuid):
        return new_id()
    if isinstance(kind, Digest):
        return os.urandom(32)
    if isinstance(kind, Identifier):
        return os.urandom(4).hex()[: kind.length]
    if isinstance(kind, UtcDateTime):
        return datetime(2026, 1, 1, tzinfo=UTC)
    if isinstance(kind, Json):
        return {}
    if isinstance(kind, Boolean | Integer):
        return 0
    return b"x" if isinstance(kind, Sealed | LargeBinary) else "x"


def add(table: Table, organization: str, **given: Any) -> dict[str, Any]:
    """Insert a row of the organization and all rows that it references; return its values."""
    values: dict[str, Any] = {"organization_id": organization} | given
    for key in table.foreign_key_constraints:
        column = key.column_keys[-1]
        if column in values:
            continue
        values[column] = None if table.c[column].nullable else add(key.referred_table, organization)["id"]
        if key.column_keys[0] != "organization_id":
            values[key.column_keys[0]] = organization
    for column in table.columns:
        if column.name not in values:
            values[column.name] = None if column.nullable else value_for(column)
    db.session.execute(insert(table).values(values))
    return values


@each(("table", "key"), FENCES)
def test_row_cannot_refer_to_another_organization(
    context: Flask, make: Factory, table: Table, key: ForeignKeyConstraint
) -> None:
    ours, theirs = make.organization().id, make.organization().id
    parent = add(key.referred_table, theirs)
    named = {element.parent.name: parent[element.column.name] for element in key.elements}
    del named["organization_id"]
    add(table, theirs, **named)
    with pytest.raises(IntegrityError) as refusal:
        add(table, ours, **named)
    assert "foreign key" in str(refusal.value.orig).lower()
    db.session.rollback()


def told_apart(table: Table) -> list[Column[Any]]:
    """Return the columns of the table's own identifiers: wide enough for text, and no foreign keys."""
    return [
        column
        for column in table.columns
        if isinstance(column.type, Identifier)
        and column.name != "organization_id"
        and not column.foreign_keys
        and (column.type.length or 0) >= 4
    ]


IDENTIFIERS = [
    pytest.param(table, column, id=str(column))
    for table in Base.metadata.sorted_tables
    if "id" in table.c and "organization_id" in table.c
    for column in told_apart(table)
]


def test_identifier_columns_are_found() -> None:
    """An empty list would let the next test pass."""
    names = {str(parameter.values[1]) for parameter in IDENTIFIERS}
    assert {"users.email_canonical", "signing_keys.kid", "role_assignments.role"} <= names


@each(("table", "column"), IDENTIFIERS)
def test_identifiers_are_compared_byte_for_byte(
    context: Flask, make: Factory, table: Table, column: Column[Any]
) -> None:
    """Case, accents and trailing spaces make different identifiers on every engine (TK-3, TK-4)."""
    organization = make.organization().id
    add(table, organization, **{column.name: "abc"})
    there = table.select().where(table.c.organization_id == organization)
    assert db.session.execute(there.where(column == "abc")).first() is not None
    for other in ("ABC", "abc ", "ábc"):
        assert db.session.execute(there.where(column == other)).first() is None, f"{column} finds {other!r}"
    db.session.rollback()
