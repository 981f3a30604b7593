"""The style sheet of an organization's accent color."""

from __future__ import annotations

from typing import Any

import pytest


def test_accent_color_is_used_and_cacheable(make: Any, http: Any) -> None:
    make.organization("acme", settings={"branding": {"accent_color": "#B00020", "theme": "dark"}})

    page = http.get("/organizations/acme/login")
    sheet = http.get("/portal/theme/b00020.css")

    assert 'href="/portal/theme/b00020.css"' in page.text and 'data-theme="dark"' in page.text
    assert "--accent: light-dark(#b00020," in sheet.text
    assert sheet.mimetype == "text/css" and "immutable" in sheet.headers["Cache-Control"]
    assert "Set-Cookie" not in sheet.headers


def test_default_color_needs_no_style_sheet(http: Any, acme: Any) -> None:
    assert "/portal/theme/" not in http.get("/organizations/acme/login").text


@pytest.mark.parametrize("digits", ["fff", "GGGGGG", "b00020;}", "B00020"])
def test_invalid_color_is_not_found(http: Any, digits: str) -> None:
    assert http.get(f"/portal/theme/{digits}.css").status_code == 404


def test_branding_form_says_how_the_color_is_used(ada: Any) -> None:
    assert "easy to read on light and dark pages" in ada.get("/settings/branding").text
    ada.send("/settings/branding", preview="1", branding__accent_color="#FFD54A", base="{}")
    assert "#856f26" in ada.text and "darkened on light pages" in ada.text
