"""The logo of an organization in Chromium: uploaded, then shown on the pages for users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from tests.browser.test_account_pages import authorize
from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
BACK = "https://orchard.example/callback"


def wordmark(path: Path) -> Path:
    """Draw black letters on a transparent background, invisible on a dark page."""
    image = Image.new("RGBA", (900, 260), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    draw.ellipse((10, 10, 250, 250), fill=(200, 40, 60, 255))
    for left in range(300, 880, 120):
        draw.rectangle((left, 60, left + 80, 200), fill=(10, 10, 10, 255))
    image.save(path)
    return path


def test_uploaded_logo_is_shown_on_pages(chromium: Any, live_server: Any, tmp_path: Path) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme", settings={"authentication": {"registration": {"mode": "open"}}})
    user = make.user(acme, role="admin")
    client = make.client(acme, redirect_uris=[BACK])
    with watched(chromium, **NARROW) as browser:
        page = browser.new_page()

        def seen(name: str) -> None:
            check(page, audited=False)
            logo = page.locator("#brand-logo")
            assert logo.count() == 1, name
            box = logo.evaluate("it => [it.naturalWidth, it.clientWidth, it.clientHeight]")
            assert box[0] == 256 and 100 < box[1] <= 192 and box[2] <= 48, (name, box)

        page.goto(f"{live_server.url}/portal/{acme.slug}/settings/branding/logo")
        sign_in(page, user.email)
        page.set_input_files("#logo", str(wordmark(tmp_path / "logo.png")))
        page.click("#logo-save")
        page.wait_for_selector("#logo-remove")
        seen("portal")
        page.goto(f"{live_server.url}{authorize(client, BACK)}")
        page.wait_for_selector("#consent-allow")
        seen("consent")
        page.goto(f"{live_server.url}{authorize(client, 'https://evil.example/')}")
        page.wait_for_selector("#error-title")
        seen("error")
        for name in ("login?reauthenticate=1", "register", "forgot", "device", "logout"):
            page.goto(f"{live_server.url}/organizations/{acme.slug}/{name}")
            seen(name.partition("?")[0])
