"""How the command line says no: the refusal in words on standard error, and exit status 1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from app.rules.errors import DomainError


def refusing(command: Callable[..., Any]) -> Callable[..., Any]:
    """A DomainError ends the command with its words, one line for each wrong field."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DomainError as refusal:
            lines = [f"{wrong.field}: {wrong.message}" for wrong in refusal.errors] or [refusal.description]
            raise click.ClickException("\n       ".join(lines)) from None

    return run
