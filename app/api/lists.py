"""The answer of every list: a page of what an operation lists, as the call's parameters ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flask import Response

from app.operations.store.pagination import Page
from app.web.bearer import Call
from app.web.json_api import envelope
from app.web.pagination import page_limit, page_meta, page_position


def listed(
    call: Call,
    listing: str,
    read: Callable[..., Page[Any]],
    *about: str,
    show: Callable[[Any], dict[str, Any]],
    **choices: Any,
) -> Response:
    """One page of the list that the operation ``read`` has of ``about``, each record as ``show`` puts it.

    ``listing`` names the list, with what it is a list of: a cursor opens no other. ``choices`` are the operation's own,
    such as filters and order. Raises InvalidInput for a limit or cursor that is none.
    """
    here = call.organization.id
    page = read(
        call.actor,
        *about,
        limit=page_limit(call.parameters),
        after=page_position(call.parameters, here, listing),
        **choices,
    )
    data = [show(record) for record in page.items]
    return envelope(data, meta=page_meta(page, call.parameters, here, listing))


def filters_of(call: Call, names: Iterable[str]) -> dict[str, str]:
    """Those of the filters that the call names."""
    return {name: call.parameters[name] for name in names if name in call.parameters}
