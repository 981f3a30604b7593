"""A real Chromium from the system, driven by Playwright; a page that breaks its own rules fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, sync_playwright


def program() -> str:
    """The path of Chromium, or an error that names the line to type."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise RuntimeError("Chromium not found. Type: sudo apt-get install -y chromium fonts-dejavu-core")
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """Chromium runs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched(chromium: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A fresh context; script errors and refused resources on its pages fail at the end."""
    complaints: list[str] = []
    context = chromium.new_context(**options)
    context.set_default_timeout(10_000)

    def watch(page: Any) -> None:
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda message: _note(complaints, page.url, message))

    context.on("page", watch)
    yield context
    context.close()
    assert not complaints, complaints


def _note(complaints: list[str], url: str, message: Any) -> None:
    # A refused form answers 400 on purpose, and Chromium reports that as an error too.
    if message.type == "error" and "Failed to load resource" not in message.text:
        complaints.append(f"{url}: {message.text}")
