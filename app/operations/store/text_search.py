"""Search for a part of a text in the case that somebody typed it, also of letters beyond ASCII."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Boolean
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from app.extensions import db
from app.models.base import COLLATION
from app.operations.store.slots import Slots
from app.rules.errors import TooManyRequests


def _refuse() -> TooManyRequests:
    return TooManyRequests(
        "Too many searches or counts are under way. Try again when one has ended.", retry_after=2
    )


# A search for a part reads every row of the organization, which may take a second.
SEARCHES = Slots(8, 3, _refuse)


def take_search_slot(organization_id: str, part: str | None) -> AbstractContextManager[Any]:
    """Take one of the SEARCHES if there is a part to look for. Raises TooManyRequests."""
    return SEARCHES.take(organization_id) if part else nullcontext()


class contains_part(FunctionElement[bool]):  # noqa: N801 - a function of SQL
    """Whether the text has the part, a parameter whose value ``searched_part`` returns.

    SQLite's LOWER changes only ASCII letters, and a function in Python would keep the other threads of the process
    waiting for each row.
    """

    type = Boolean()
    inherit_cache = True


@compiles(contains_part)
def _compile(element: contains_part, compiler: SQLCompiler, **options: Any) -> str:
    text, part = (compiler.process(clause, **options) for clause in element.clauses)
    # Both by the server and by the rules of the columns: those of Python differ, such as for a sigma at the end.
    return f"INSTR(LOWER({text}), LOWER({part} COLLATE {COLLATION})) > 0"


@compiles(contains_part, "sqlite")
def _compile_on_sqlite(element: contains_part, compiler: SQLCompiler, **options: Any) -> str:
    text, part = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({text}) GLOB {part}"


def searched_part(query: str) -> str:
    """Return the value of the parameter of ``contains_part``: the query, or a pattern of SQLite's GLOB."""
    if db.session.get_bind().dialect.name != "sqlite":
        return query
    return f"*{''.join(map(_in_either_case, query))}*"


def _in_either_case(letter: str) -> str:
    cases = sorted({case for case in (letter, letter.lower(), letter.upper()) if len(case) == 1})
    return f"[{''.join(cases)}]" if len(cases) > 1 or letter in "*?[" else letter
