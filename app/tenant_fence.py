"""The tenant fence: no statement reaches rows of organizations without naming an organization (TN-5).

MySQL has no row-level security. So the text of each SELECT, UPDATE and DELETE is checked at its first execution: it
must restrict every table of organizations by ``organization_id``, and one of them to given organizations. Statements
for all organizations, such as the janitor's batches, have the execution option ``ACROSS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

ACROSS: Mapping[str, Any] = {"across_organizations": True}
"""The execution option of a statement for all organizations."""
_TOUCHED = re.compile(r"(?:\bFROM|\bJOIN|\bUPDATE|,)\s+([a-z_]+)(?: AS ([a-z_0-9]+))?(?=[\s,)]|$)")
_NARROWED = re.compile(r"\b(?:WHERE|ON)\b.*", re.DOTALL)
# A value, a list of values or a query of them, on either side; or a condition that no row meets.
_NAMED = re.compile(
    r"organization_id (?:=|IN|<|>|<=|>=) (?:%s|\?|:|'|\(|_binary)|(?:%s|\?) = [a-z_0-9]+\.organization_id"
)
_NOBODYS = re.compile(r"\bWHERE (?:0 = 1|false)\b")
_READ = ("SELECT", "UPDATE", "DELETE", "WITH")
_MAX_KNOWN_STATEMENTS = 20_000


class Unfenced(RuntimeError):
    """A statement does not name an organization: a defect of this service, never an error of the caller."""


class Fence:
    """The tables of organizations, and the statements that have passed the check."""

    def __init__(self, tables: Callable[[], frozenset[str]]) -> None:
        self._find_tables = tables
        self._tables: frozenset[str] = frozenset()
        self._good: set[str] = set()

    def listen(self, engine: Engine) -> None:
        """Check every statement of the engine."""
        event.listen(engine, "before_cursor_execute", self._before_execution)

    def require(self, statement: str) -> None:
        """Raise Unfenced unless the statement restricts each table of organizations to given ones."""
        if statement in self._good or not statement.lstrip("( \n").startswith(_READ):
            return
        self._tables = self._tables or self._find_tables()
        touched = list(self._touched(statement))
        if touched and _NOBODYS.search(statement) is None:
            narrowing = _NARROWED.search(statement)
            text = narrowing[0] if narrowing else ""
            for name in touched:
                if f"{name}.organization_id" not in text:
                    self.refuse(
                        f"This statement does not restrict {name} to an organization: {statement[:1000]}"
                    )
            if _NAMED.search(text) is None:
                self.refuse(f"This statement names no organization: {statement[:1000]}")
        if len(self._good) < _MAX_KNOWN_STATEMENTS:
            self._good.add(statement)

    def refuse(self, words: str) -> None:
        """Raise Unfenced."""
        raise Unfenced(words)

    def _touched(self, statement: str) -> Iterator[str]:
        for found in _TOUCHED.finditer(statement):
            if found[1] in self._tables:
                yield found[2] or found[1]

    def _before_execution(
        self, _connection: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool
    ) -> None:
        options = context.execution_options if context is not None else {}
        if not options.get("across_organizations"):
            self.require(statement)
