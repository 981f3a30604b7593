"""Registration, email verification and known browsers in Chromium."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories import PASSWORD, Factory
from tests.support.browser import NARROW, check, sign_in, watched
from tests.support.databases import MariaDBDatabase
from tests.support.mail_server import SENDER, Mailbox, mail_server
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture(scope="module")
def server(
    mariadb: MariaDB, instance: Path, scratch: Path, worker: str, box: Mailbox
) -> Iterator[LiveServer]:
    settings = {"GATEHOUSE_SMTP_URL": f"smtp://127.0.0.1:{box.port}", "GATEHOUSE_MAIL_FROM": SENDER}
    database = MariaDBDatabase(mariadb, f"addresses_{worker}")
    made = LiveServer(database, instance, scratch / "addresses.log", settings=settings)
    made.start()
    yield made
    made.stop()


def link_after(box: Mailbox, act: Callable[[], object]) -> str:
    """Perform the action and return the link from the email it sends."""
    before = len(box.mails)
    act()
    deadline = time.monotonic() + 20
    while len(box.mails) <= before:
        assert time.monotonic() < deadline, "no mail came"
        time.sleep(0.05)
    return box.links()[-1]


def test_user_registers_verifies_and_changes_email(chromium: Any, server: LiveServer, box: Mailbox) -> None:
    """OI-5, SS-6: every page on the way, including a wrong password."""
    make = Factory(server.app)
    acme = make.organization(name="Acme", settings={"authentication": {"registration": {"mode": "open"}}})
    home = f"{server.url}/organizations/{acme.slug}"
    with watched(chromium, **NARROW) as context:
        page = context.new_page()
        page.goto(f"{home}/register")
        page.fill("#name", "New Person")
        page.fill("#username", "new@example.com")
        page.fill("#password", PASSWORD)
        link = link_after(box, lambda: page.click("#register-submit"))
        page.wait_for_selector("#registered")
        check(page)
        page.goto(link)
        check(page)
        page.fill("#password", "another password entirely")
        page.click("#confirm-submit")
        page.wait_for_selector("[role=alert]")
        check(page)
        page.fill("#password", PASSWORD)
        page.click("#confirm-submit")
        page.wait_for_selector("#confirmed")
        check(page)
        sign_in(page, "new@example.com")
        page.wait_for_url("**/account/**")
        page.goto(f"{home}/account/sessions")
        assert page.locator("#known-browsers").is_visible()
        check(page)
        page.goto(f"{home}/account/email")
        check(page)
        page.fill("#email", "newer@example.com")
        link = link_after(box, lambda: page.click("#email-submit"))
        check(page)
        page.goto(link)
        check(page)
        page.click("#confirm-submit")
        page.wait_for_url("**/account/profile")
        assert "newer@example.com" in page.inner_text("main")


def test_pending_registration_appears_in_the_portal(chromium: Any, server: LiveServer, box: Mailbox) -> None:
    make = Factory(server.app)
    acme = make.organization(name="Acme", settings={"authentication": {"registration": {"mode": "open"}}})
    boss = make.user(acme, role="admin")
    with watched(chromium, **NARROW) as context:
        page = context.new_page()
        page.goto(f"{server.url}/organizations/{acme.slug}/register")
        page.fill("#name", "New Person")
        page.fill("#username", "somebody.with.a.rather.long.address@a-long-domain.example.com")
        page.fill("#password", PASSWORD)
        link_after(box, lambda: page.click("#register-submit"))
        page.goto(f"{server.url}/organizations/{acme.slug}/login?next=/portal/{acme.slug}/registrations")
        sign_in(page, boss.email)
        page.wait_for_url("**/registrations")
        check(page)
        page.get_by_role("button", name="Approve").click()
        page.wait_for_selector("text=Account approved")
        check(page)
