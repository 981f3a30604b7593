"""Errors of the command line: a message on standard error and exit status 1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from app.rules.errors import DomainError


def report_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: a DomainError ends it with its description, or with one line per invalid field."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DomainError as error:
            lines = [f"{wrong.field}: {wrong.message}" for wrong in error.errors] or [error.description]
            raise click.ClickException("\n       ".join(lines)) from None

    return run
