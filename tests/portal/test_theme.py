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


def test_branding_sample_shows_submitted_values_and_saves_nothing(make: Any, ada: Any, http: Any) -> None:
    path, theme = "/settings/branding", "/portal/theme/ffd54a.css"
    assert theme not in ada.get(path).text

    values = {
        "branding.accent_color": "#FFD54A",
        "branding.display_name": "Acme ID",
        "branding.theme": "dark",
    }
    page = ada.send(path, preview="1", base="{}", **values).text

    assert f'href="{theme}?sample"' in page and "Sign in to Acme ID" in page
    assert "Reset your Acme ID password" in page
    assert page.count('sample" data-theme="dark"') == 1 and 'sample" data-theme="light"' not in page
    assert http.get(f"{theme}?sample").text.startswith(".sample {")
    assert http.get(theme).text.startswith(":root {")
    assert "Acme ID" not in ada.get(path).text
    # An invalid color leaves the saved one.
    assert (
        "/portal/theme/"
        not in ada.send(path, preview="1", base="{}", **{"branding.accent_color": "blue"}).text
    )
