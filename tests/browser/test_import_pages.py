"""Imports of users in Chromium: a file is previewed and imported, with a page that refreshes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched
from tests.support.importing import user_rows

pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_users_are_imported_without_scripts(chromium: Any, live_server: Any, tmp_path: Path) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user = make.user(acme, role="admin")
    file = tmp_path / "users.csv"
    file.write_text(user_rows(600) + "nobody,Wrong\n")
    with watched(chromium, **NARROW, java_script_enabled=False) as browser:
        page = browser.new_page()

        page.goto(f"{live_server.url}/portal/{acme.slug}/users/imports")
        sign_in(page, user.email)
        page.wait_for_selector("#file")
        check(page, audited=False)
        page.set_input_files("#file", str(file))
        page.click("text=Preview import")
        page.wait_for_selector("text=Import 600 users", timeout=30_000)
        check(page, audited=False)
        page.click("text=Import 600 users")
        page.wait_for_selector("text=Result", timeout=30_000)
        page.wait_for_selector(".badge:has-text('Done')", timeout=30_000)
        assert (page.inner_text("#created"), page.inner_text("#rejected")) == ("600", "1")
        with page.expect_download() as download:
            page.click("#report")
        assert "nobody" in Path(download.value.path()).read_text()
