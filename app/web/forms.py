"""Forms of pages: what was typed, and where a refusal's words land."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flask import request

from app.rules.errors import DomainError
from app.web.languages import in_page_language

_VERSION = re.compile(r"[0-9]{1,10}")
_INDEX = re.compile(r"\[(\d+)\].*")


def text(name: str) -> str:
    """What was typed into the field, without the spaces around it."""
    return request.form.get(name, "").strip()


def version_read() -> int | None:
    """The version that the form was made of, or None when it names none that could be."""
    found = _VERSION.fullmatch(text("version"))
    return int(found[0]) if found else None


def lines(name: str) -> list[str]:
    """The lines of a text area that hold something."""
    return [line.strip() for line in request.form.get(name, "").splitlines() if line.strip()]


def ticked(name: str) -> list[str]:
    """The values of the boxes that are ticked, each once, in their order."""
    return list(dict.fromkeys(request.form.getlist(name)))


def is_ticked(name: str) -> bool:
    """Whether the one box of this name is ticked."""
    return bool(request.form.get(name))


def field_errors(error: DomainError, form_fields: Mapping[str, str] | None = None) -> dict[str, str]:
    """The refusal as field name to message in the page's language, for the macros of ``macros/forms.html``.

    ``form_fields`` names the form's own field for one of the operation. ``redirect_uris[1]`` lands at
    ``redirect_uris`` and says which line is meant; what belongs to no field stands under the empty name.
    """
    found: dict[str, str] = {}
    for wrong in error.errors:
        index = _INDEX.search(wrong.field)
        name = _INDEX.sub("", wrong.field)
        name = (form_fields or {}).get(name, name)
        message = in_page_language(wrong.message)
        if index:
            message = f"Line {int(index[1]) + 1}: {message}"
        found[name] = f"{found[name]} {message}" if name in found else message
    return found or {"": in_page_language(error.description)}
