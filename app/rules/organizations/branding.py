"""Colors: make an organization's accent color readable on light and dark pages (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re

from msgspec import Struct

from app.rules.languages.translation import lazy_gettext

DEFAULT_ACCENT = "#3347c9"
MIN_CONTRAST = 4.5
# The surfaces of static/app.css with the least contrast: the darkest light one and the lightest dark one.
_LIGHT_SURFACE, _DARK_SURFACE = "#f6f7f9", "#1d222a"
_DARK_TEXT, _LIGHT_TEXT = "#14181f", "#ffffff"
_HEX_COLOR = re.compile(r"#[0-9a-f]{6}")
_STEPS = 50


class Accent(Struct, frozen=True):
    """The accent color and the text color on it, for light and dark pages."""

    light: str
    on_light: str
    dark: str
    on_dark: str


def readable_accent(color: str) -> Accent:
    """Return the color, or the nearest readable one for each theme. Raises ValueError unless it is ``#`` and six
    digits.
    """
    if _HEX_COLOR.fullmatch(color) is None:
        raise ValueError("a color is # and six lower-case hexadecimal digits")
    light = _readable(color, _LIGHT_SURFACE, "#000000")
    dark = _readable(color, _DARK_SURFACE, "#ffffff")
    return Accent(light, _text_on(light), dark, _text_on(dark))


def describe_accent(color: str) -> list[str]:
    """Return sentences about the use of an accent color: the text on it, the contrast, and where it was adjusted.

    Raises ValueError like ``readable_accent``.
    """
    if color == DEFAULT_ACCENT:
        return [lazy_gettext("The default color is easy to read on light and dark pages.")]
    accent = readable_accent(color)
    light = {"color": accent.light, "contrast": f"{contrast_ratio(accent.light, accent.on_light):.1f}"}
    dark = {"color": accent.dark, "contrast": f"{contrast_ratio(accent.dark, accent.on_dark):.1f}"}
    sentences = [
        lazy_gettext(
            "On light pages, buttons have white text on %(color)s, with a contrast of %(contrast)s to 1.",
            **light,
        )
        if accent.on_light == _LIGHT_TEXT
        else lazy_gettext(
            "On light pages, buttons have dark text on %(color)s, with a contrast of %(contrast)s to 1.",
            **light,
        ),
        lazy_gettext(
            "On dark pages, buttons have white text on %(color)s, with a contrast of %(contrast)s to 1.",
            **dark,
        )
        if accent.on_dark == _LIGHT_TEXT
        else lazy_gettext(
            "On dark pages, buttons have dark text on %(color)s, with a contrast of %(contrast)s to 1.",
            **dark,
        ),
    ]
    if accent.light != color:
        sentences.append(
            lazy_gettext("Your color is darkened on light pages, where it would be hard to read.")
        )
    if accent.dark != color:
        sentences.append(
            lazy_gettext("Your color is lightened on dark pages, where it would be hard to read.")
        )
    return sentences


def contrast_ratio(first: str, second: str) -> float:
    """Return the contrast ratio of two colors, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _readable(color: str, surface: str, towards: str) -> str:
    for step in range(_STEPS + 1):
        mixed = _mix(color, towards, step / _STEPS)
        if contrast_ratio(mixed, surface) >= MIN_CONTRAST:
            return mixed
    return towards


def _text_on(color: str) -> str:
    return max((_LIGHT_TEXT, _DARK_TEXT), key=lambda text: contrast_ratio(text, color))


def _mix(color: str, other: str, share: float) -> str:
    parts = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round(own + (wanted - own) * share):02x}" for own, wanted in parts)


def _luminance(color: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(value: float) -> float:
    return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
