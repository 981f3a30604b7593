"""Theme: the style sheet of an accent colour. It depends on the colour alone, so it may be kept for ever."""

from __future__ import annotations

import re

from flask import Response

from app.portal.blueprint import portal
from app.rules.errors import NotFound
from app.rules.organizations.branding import readable_accent

_DIGITS = re.compile(r"[0-9a-f]{6}")


@portal.get("/portal/theme/<digits>.css")
def theme(digits: str) -> Response:
    """The tokens of ``static/app.css`` that the colour replaces, made readable on light and dark pages."""
    if _DIGITS.fullmatch(digits) is None:
        raise NotFound("There is no such style sheet.")
    accent = readable_accent(f"#{digits}")
    text = (
        f":root {{ --accent: light-dark({accent.light}, {accent.dark}); "
        f"--on-accent: light-dark({accent.on_light}, {accent.on_dark}) }}\n"
    )
    answer = Response(text, mimetype="text/css")
    answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return answer
