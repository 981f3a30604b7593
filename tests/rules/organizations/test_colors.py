"""Accent colors: every color is made readable, and readable ones are unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.rules.organizations.branding import (
    DEFAULT_ACCENT,
    MIN_CONTRAST,
    contrast_ratio,
    describe_accent,
    readable_accent,
)
from tests.support.cases import each

COLORS = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


@given(COLORS)
def test_every_accent_is_readable_in_both_themes(color: str) -> None:
    accent = readable_accent(color)

    assert (
        contrast_ratio(accent.light, "#f6f7f9") >= MIN_CONTRAST
        and contrast_ratio(accent.light, "#ffffff") >= MIN_CONTRAST
    )
    assert (
        contrast_ratio(accent.dark, "#1d222a") >= MIN_CONTRAST
        and contrast_ratio(accent.dark, "#0f1216") >= MIN_CONTRAST
    )
    assert contrast_ratio(accent.on_light, accent.light) >= MIN_CONTRAST
    assert contrast_ratio(accent.on_dark, accent.dark) >= MIN_CONTRAST


def test_readable_color_is_unchanged() -> None:
    assert readable_accent(DEFAULT_ACCENT).light == DEFAULT_ACCENT


def test_contrast_ratio_matches_the_standard() -> None:
    assert contrast_ratio("#000000", "#ffffff") == pytest.approx(21)
    assert contrast_ratio("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@each("color", ["", "blue", "#fff", "#GGGGGG", "#3347C9", "#3347c9;}", "3347c9"])
def test_invalid_color_is_rejected(color: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        readable_accent(color)


def test_a_light_accent_is_described_with_its_text_color_contrast_and_change() -> None:
    assert describe_accent("#ffd54a") == [
        "On light pages, buttons have white text on #856f26, with a contrast of 4.9 to 1.",
        "On dark pages, buttons have dark text on #ffd54a, with a contrast of 12.6 to 1.",
        "Your color is darkened on light pages, where it would be hard to read.",
    ]
