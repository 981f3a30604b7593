"""The audit log in Chromium: narrow and dark, by keyboard, without scripts, and its export."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from app.operations.clients.clients import update_client
from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched

TOPS = "fields => fields.map(one => Math.round(one.getBoundingClientRect().top))"

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_change_is_found_and_log_is_exported(chromium: Any, live_server: Any, scripts: bool) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user = make.user(acme, role="admin")
    with make.app.app_context():
        client = make.client(acme)
        update_client(make.actor(acme, user=user), client.client_id, {"name": "Meadow"})
    with watched(chromium, **NARROW, java_script_enabled=scripts) as browser:
        page = browser.new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/audit")
        sign_in(page, user.email)
        page.click("#more summary")
        page.fill("#action", "client.updated")
        page.press("#action", "Enter")
        page.wait_for_selector("a:has-text('updated a client')")
        check(page, audited=False)
        with page.expect_download() as download:
            page.click("#export-csv")
        with open(download.value.path(), newline="") as file:
            assert [row["action"] for row in csv.DictReader(file)] == ["client.updated"]
        page.click("a:has-text('updated a client')")
        assert page.inner_text("#changes tbody th") == "name"
        assert "Orchard" in page.inner_text("#changes") and "Meadow" in page.inner_text("#changes")
        check(page, audited=False)
        # Side by side, a longer hint moves neither its label nor its input.
        page.set_viewport_size({"width": 1300, "height": 900})
        page.goto(f"{live_server.url}/portal/{acme.slug}/audit?actor=x")
        for part in ("label", "input"):
            tops = page.eval_on_selector_all(f"#audit-filters .field > {part}", TOPS)
            assert len(set(tops[:3])) == 1 and len(set(tops)) == 3, tops
