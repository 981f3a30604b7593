"""Chromium driven by Playwright; a page that violates its own CSP fails the test."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.factories import PASSWORD
from tests.support.https_server import Response, https_server

# Return null until the page has loaded, then the elements that overflow on the right.
_TOO_WIDE = """() => {
  const whole = document.documentElement
  if (!whole || document.readyState !== 'complete') return null
  if (whole.scrollWidth <= whole.clientWidth) return []
  return [...document.querySelectorAll('body *')]
    .filter((element) => element.getBoundingClientRect().right > whole.clientWidth)
    .map((element) => element.outerHTML.slice(0, 200))
}"""
# Return the violations, and the combinations of colours whose contrast suffices. Contrast costs more than all other
# rules together, and is the same wherever the colours of a text and of what is behind it are, with its size and weight.
# So each combination is checked at two elements, and at all of them if the contrast of those is not known to suffice.
_AUDIT = """async (known) => {
  const combinations = new Map()
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
    if (!hasText && !element.matches('input, select, textarea')) continue
    const {color, fontSize, fontWeight, textShadow} = getComputedStyle(element)
    const layers = [color, fontSize, fontWeight, textShadow]
    for (let behind = element; behind; behind = behind.parentElement) {
      const {backgroundColor, backgroundImage, opacity, position} = getComputedStyle(behind)
      const layer = [backgroundColor, backgroundImage, opacity, position].join(' ')
      if (layer !== 'rgba(0, 0, 0, 0) none 1 static') layers.push(layer)
    }
    const combination = layers.join('; ')
    if (known.includes(combination)) continue
    if (!combinations.has(combination)) combinations.set(combination, [])
    combinations.get(combination).push(element)
  }
  const {violations} = await axe.run({resultTypes: ['violations'], rules: {'color-contrast': {enabled: false}}})
  const sufficient = new Set()
  for (const elementsOf of [(all) => all.slice(0, 2), (all) => all.slice(2)]) {
    const unknown = [...combinations].filter(([name]) => !sufficient.has(name)).flatMap(([, all]) => elementsOf(all))
    if (!unknown.length) break
    const options = {runOnly: ['color-contrast'], resultTypes: ['violations', 'passes'], elementRef: true}
    const found = await axe.run({include: unknown}, options)
    const elements = (results) => new Set(results.flatMap(({nodes}) => nodes.map(({element}) => element)))
    const [passed, violating] = [elements(found.passes), elements(found.violations)]
    for (const [name, all] of combinations) {
      if (all.some((each) => passed.has(each)) && !all.some((each) => violating.has(each))) sufficient.add(name)
    }
    for (const {id, help, nodes} of found.violations) {
      violations.push({id, help, nodes: nodes.map(({html}) => ({html}))})
    }
  }
  return [violations, [...sufficient]]
}"""
# The first is Chromium without windows, which needs two thirds of the processor time.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_known_combinations: set[str] = set()
_pictures = itertools.count(1)
NARROW: dict[str, Any] = {"color_scheme": "dark", "viewport": {"width": 320, "height": 800}}
WIDE: dict[str, Any] = {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}}


def program() -> str:
    """Return the path of Chromium, or raise an error with the installation command."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise RuntimeError(
            f"Chromium not found. Type: sudo apt-get install -y {_PROGRAMS[0]} fonts-dejavu-core"
        )
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """Start Chromium, for which every address that ends with .example is an app that shows its title."""
    app = Response(200, b"<title>the app</title>", {"Content-Type": "text/html"})
    with https_server(lambda _request: app) as server, sync_playwright() as playwright:
        apps = f"--host-resolver-rules=MAP *.example:443 127.0.0.1:{server.port}"
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox", apps])
        yield browser
        browser.close()


@contextmanager
def watched(chromium: Browser, **options: Any) -> Iterator[BrowserContext]:
    """Return a new context; script errors and blocked resources on its pages fail the test at the end."""
    complaints: list[str] = []
    context = chromium.new_context(ignore_https_errors=True, **options)
    # A busy machine is not a fault of the page.
    context.set_default_timeout(30_000)

    def watch(page: Any) -> None:
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda message: _note(complaints, page.url, message))

    context.on("page", watch)
    yield context
    context.close()
    assert not complaints, complaints


def looks(page: Any) -> Iterator[str]:
    """Show the page wide and light, then narrow and dark, which it stays; yield the name of each look.

    Both widths and both schemes: what is wrong in one of them alone needs no third look.
    """
    for look in (WIDE, NARROW):
        page.set_viewport_size(look["viewport"])
        page.emulate_media(color_scheme=look["color_scheme"])
        yield f"{look['color_scheme']}-{look['viewport']['width']}"


def faults_of(page: Any, *, audited: bool = True) -> list[str]:
    """Return usability faults in both ``looks``: overflow (WCAG 1.4.10) and findings of axe.

    The narrow one is also shown with text of twice the size (WCAG 1.4.4). Waits until the page is loaded. axe is
    skipped unless ``audited``, because it needs scripts. Screenshots are saved in the folder that GATEHOUSE_PICTURES
    names.
    """
    faults, wide = [], []
    page.wait_for_function(_TOO_WIDE)
    if audited:
        page.evaluate(AXE_SCRIPT)
    for look in looks(page):
        wide = page.evaluate(_TOO_WIDE)
        faults += [f"{look}: wider than its screen: {element}" for element in wide]
        folder = os.environ.get("GATEHOUSE_PICTURES")
        if folder:
            page.screenshot(path=Path(folder) / f"{os.getpid()}-{next(_pictures):03}.png", full_page=True)
        if audited:
            violations, passed = page.evaluate(_AUDIT, list(_known_combinations))
            _known_combinations.update(passed)
            for found in violations:
                places = [node["html"][:200] for node in found["nodes"][:3]]
                faults.append(f"{look}: {found['id']}: {found['help']} {places}")
    if not wide:
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        faults += [f"large text: wider than its screen: {element}" for element in page.evaluate(_TOO_WIDE)]
        page.evaluate("document.documentElement.style.fontSize = ''")
    return faults


def check(page: Any, *, audited: bool = True) -> None:
    """Check that the page has no ``faults_of``."""
    faults = faults_of(page, audited=audited)
    assert not faults, "\n".join([page.url, *faults])


def sign_in(page: Any, email: str, password: str = PASSWORD) -> None:
    """Fill in and submit the sign-in form."""
    page.fill("#username", email)
    page.fill("#password", password)
    page.click("#login-submit")


def _note(complaints: list[str], url: str, message: Any) -> None:
    # An invalid form returns 400 on purpose, which Chromium reports as an error.
    if message.type == "error" and "Failed to load resource" not in message.text:
        complaints.append(f"{url}: {message.text}")
