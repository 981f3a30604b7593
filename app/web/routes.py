"""Routes whose addresses are built by code that is made when the first page asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from werkzeug.routing import Rule


class Route(Rule):
    """A rule of the URL map.

    Werkzeug compiles two functions for each of four hundred rules while the application is made, a seventh of the time
    until a worker answers, although most of them are never called: the API names few of its own addresses.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_now = super()._compile_builder
        name = "_build_unknown" if append_unknown else "_build"

        def build(rule: Any, **values: Any) -> tuple[str, str]:
            made = compile_now(append_unknown).__get__(rule, None)
            setattr(rule, name, made)
            address: tuple[str, str] = made(**values)
            return address

        return build
