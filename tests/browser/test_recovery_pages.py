"""Password recovery in Chromium, with real workers and a mail server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched
from tests.support.databases import MariaDBDatabase
from tests.support.mail_server import SENDER, Mailbox, mail_server
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.live, pytest.mark.browser]
NEW = "a wholly different password"


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture(scope="module")
def server(
    mariadb: MariaDB, instance: Path, scratch: Path, worker: str, box: Mailbox
) -> Iterator[LiveServer]:
    settings = {"GATEHOUSE_SMTP_URL": f"smtp://127.0.0.1:{box.port}", "GATEHOUSE_MAIL_FROM": SENDER}
    database = MariaDBDatabase(mariadb, f"recovery_{worker}")
    made = LiveServer(database, instance, scratch / "recovery.log", settings=settings)
    made.start()
    yield made
    made.stop()


def newest_link(box: Mailbox, before: int) -> str:
    deadline = time.monotonic() + 20
    while len(box.mails) <= before:
        assert time.monotonic() < deadline, "no mail came"
        time.sleep(0.05)
    return box.links()[-1]


def test_forgotten_password_is_reset(chromium: Any, server: LiveServer, box: Mailbox) -> None:
    """RP-1 to RP-3; TK-2: no link is in a log or in the database."""
    make = Factory(server.app)
    make.root()
    ada = make.user(make.organization(name="Acme"))
    with watched(chromium, **NARROW) as context:
        page = context.new_page()
        page.goto(f"{server.url}/organizations/{ada.organization.slug}/login")
        check(page)
        page.fill("#username", ada.email)
        page.get_by_role("link", name="Forgot password?").click()
        page.wait_for_selector("#forgot-submit")
        assert page.input_value("#username") == ada.email and "#" not in page.url
        check(page)
        before = len(box.mails)
        page.click("#forgot-submit")
        page.wait_for_selector("#forgot-sent")
        check(page)
        link = newest_link(box, before)
        page.goto(link)
        check(page)
        page.fill("#password", NEW)
        page.click("#reset-submit")
        page.wait_for_selector("#reset-done")
        check(page)
        sign_in(page, ada.email, NEW)
        page.wait_for_url("**/account/profile")
    assert "was reset" in _subject_after(box, before + 1)
    secret = link.rpartition("gth_pw_")[2]
    assert secret[:30] not in server.logs()
    outbox = str(server.database.query("SELECT payload FROM outbox"))
    assert secret[:30] not in outbox and ada.email not in outbox


def _subject_after(box: Mailbox, before: int) -> str:
    newest_link(box, before)
    return str(box.mails[-1]["Subject"])
