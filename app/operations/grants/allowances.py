"""What a user allowed a client, and the tokens of clients, in lists: who may see them, and what narrows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, false

from app.models.client import Client
from app.models.user import User
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.fields import Findings, find_unknown
from app.rules.identifiers import parse_client_id, parse_public_id

FILTERS = ("client_id", "user_id")
# Beside client_id, which names its organization: the prefix of each filter's ids, and what they are ids of.
_IDS = {"user_id": ("usr", "user"), "credential_id": ("sec", "secret")}


def visible(actor: Actor, statement: Select[Any], model: Any, permission: str) -> Select[Any]:
    """The statement with client and user of the model's rows, narrowed to what the actor may see or end.

    Raises Forbidden.
    """
    statement = (
        statement.join(
            Client, (Client.organization_id == model.organization_id) & (Client.id == model.client_id)
        )
        .join(User, (User.organization_id == model.organization_id) & (User.id == model.user_id))
        .where(model.organization_id == actor.organization_id)
    )
    return of_own_clients(actor, statement, permission)


def of_own_clients(actor: Actor, statement: Select[Any], permission: str) -> Select[Any]:
    """The statement, which joins Client, as it is, or with ``:own`` of the permission narrowed to the person's own.

    Raises Forbidden.
    """
    actor.require_some(permission)
    if actor.may(permission):
        return statement
    # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
    return statement.where(false() if actor.user_id is None else Client.created_by_user_id == actor.user_id)


def conditions(
    actor: Actor, columns: Mapping[str, Any], filters: Mapping[str, str]
) -> Iterator[ColumnElement[bool]]:
    """What the filters, exact public ids, say of the columns of their names. Raises InvalidInput naming a wrong one."""
    findings = Findings()
    find_unknown(findings, filters, tuple(columns), noun="filter")
    findings.raise_if_any()
    for name, value in filters.items():
        if name == "client_id":
            client = parse_client_id(value)
            if client is None:
                raise InvalidInput("This is no client_id of ours.", field=name)
            yield columns[name] == client[1] if client[0] == actor.organization_id else false()
            continue
        prefix, noun = _IDS[name]
        row_id = parse_public_id(prefix, value)
        if row_id is None:
            raise InvalidInput(f"This is no id of a {noun}.", field=name)
        yield columns[name] == row_id


def columns_of(model: Any) -> dict[str, Any]:
    """The columns that FILTERS narrow."""
    return {name: getattr(model, name) for name in FILTERS}
