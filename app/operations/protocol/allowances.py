"""What a user allowed a client, in lists: whose it is, who may see it, and what it can be asked for by."""

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


def visible(statement: Select[Any], model: Any, actor: Actor, permission: str) -> Select[Any]:
    """The statement with client and user of the model's rows, narrowed to what the actor may see or end.

    With the ``:own`` form of the permission that is what was allowed to the person's own clients. Raises Forbidden.
    """
    actor.require_some(permission)
    statement = (
        statement.join(
            Client, (Client.organization_id == model.organization_id) & (Client.id == model.client_id)
        )
        .join(User, (User.organization_id == model.organization_id) & (User.id == model.user_id))
        .where(model.organization_id == actor.organization_id)
    )
    if actor.may(permission):
        return statement
    # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
    return statement.where(false() if actor.user_id is None else Client.created_by_user_id == actor.user_id)


def conditions(model: Any, actor: Actor, filters: Mapping[str, str]) -> Iterator[ColumnElement[bool]]:
    """What the filters, of FILTERS and exact, say of the model's rows. Raises InvalidInput naming a wrong one."""
    findings = Findings()
    find_unknown(findings, filters, FILTERS, noun="filter")
    findings.raise_if_any()
    if "client_id" in filters:
        client = parse_client_id(filters["client_id"])
        if client is None:
            raise InvalidInput("This is no client_id of ours.", field="client_id")
        yield model.client_id == client[1] if client[0] == actor.organization_id else false()
    if "user_id" in filters:
        user_id = parse_public_id("usr", filters["user_id"])
        if user_id is None:
            raise InvalidInput("This is no id of a user.", field="user_id")
        yield model.user_id == user_id
