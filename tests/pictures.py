"""Take a named picture of every page of the demo: ``script/test pictures [FOLDER] [LANGUAGE]``.

Follows every link of the portal, of an account and of the sign-in, as an administrator of an organization and of the
installation. One page of each kind is looked at, wide and narrow, light and dark. Prints what is wrong with a page:
too many bytes, overflow, findings of axe, violations of its policy and errors of its scripts. Needs only a checkout: it
starts its own demo.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import requests
from axe_playwright_python.base import AXE_SCRIPT

from tests.support.browser import sign_in, started
from tests.support.process import free_port, wait_until

ROOT = Path(__file__).resolve().parents[1]
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
# What axe finds in one of these, it would find in the others.
_AUDITED = {LOOKS[0], LOOKS[-1]}
_READY = re.compile(r"Gatehouse is running at (\S+)")
_USER = re.compile(r"^\s+(\S+@\S+)\s+(\S+)", re.MULTILINE)
# Ids, and names of the many pages that differ only in them.
_ID = re.compile(
    r"[a-z]{2,4}_[a-z0-9_]{20,}|(?<=portal/scopes/).+|(?<=portal/instance-limits/).+|(?<=docs/api/).+"
)
# Parameters that make a page of another kind, the first ones with each value.
_VALUES = ("type", "task")
_PARAMETERS = (*_VALUES, "client", "tag")
# Pages that no link leads to.
_UNLINKED = ("device", "login?reauthenticate=1", "forgot", "nothing-here")
_MAX_PAGE_BYTES = 50_000
_SKIPPED = re.compile(r"(?<!/docs)/(export|logout|theme|static|api|\.well-known)(/|$)|\.json$")
_MAX_PAGES = 200
_PATIENCE_MILLISECONDS = 120_000


def main(folder: Path, language: str = "en") -> int:
    """Write the pictures to the folder and return how many faults were found."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as instance:
        process, base, users = _start_demo(Path(instance))
        try:
            faults = _look_at_everything(folder, base, users, language)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    print(*faults, sep="\n")
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}, {len(faults)} faults")
    return len(faults)


def _start_demo(instance: Path) -> tuple[subprocess.Popen[str], str, dict[str, str]]:
    command = ["script/server", "--demo", "--port", str(free_port()), "--demo-port", str(free_port())]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "GATEHOUSE_INSTANCE": str(instance), "GATEHOUSE_LOG_LEVEL": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = ""
    assert process.stdout
    for line in process.stdout:
        said += line
        if started_at := _READY.search(line):
            # It says so before its workers listen.
            wait_until(lambda: _is_served(started_at[1]), "the demo", seconds=120)
            return process, started_at[1], dict(_USER.findall(said))
    raise RuntimeError(f"The demo did not start:\n{said}")


def _is_served(base: str) -> bool:
    try:
        return requests.get(f"{base}/readyz", timeout=10).status_code == 200
    except requests.RequestException:
        return False


def _look_at_everything(folder: Path, base: str, users: dict[str, str], language: str) -> list[str]:
    faults: list[str] = []
    seen: set[str] = set()
    with started() as chromium:
        for organization, email in _administrators(users).items():
            context = chromium.new_context(locale=language)
            context.set_default_timeout(_PATIENCE_MILLISECONDS)
            page = context.new_page()
            _listen(page, faults)
            start = f"{base}/portal/{organization}"
            page.goto(start)
            _take(page, folder / f"{organization}-sign-in", faults)
            sign_in(page, email, users[email])
            page.wait_for_url(f"{start}**")
            _walk(page, base, organization, folder, faults, seen)
            for path in _UNLINKED:
                page.goto(f"{base}/organizations/{organization}/{path}")
                _take(page, folder / f"{organization}-{path.partition('?')[0]}", faults)
            context.close()
    return faults


def _administrators(users: dict[str, str]) -> dict[str, str]:
    emails = list(users)
    return {"acme": next(email for email in emails if email.startswith("ada@")), "root": emails[0]}


def _walk(page: Any, base: str, organization: str, folder: Path, faults: list[str], seen: set[str]) -> None:
    """Visit one page of each kind that links lead to: pages are of one kind if only ids and queries differ."""
    account = f"/organizations/{organization}/account/profile"
    waiting = deque([f"/portal/{organization}", account])
    while waiting and len(seen) < _MAX_PAGES:
        path = waiting.popleft()
        kind = urlsplit(path).path.strip("/").replace(f"/{organization}", "", 1)
        # Home differs: root's shows the instance.
        name = f"{organization}-home" if kind == "portal" else _ID.sub("id", kind).replace("/", "-")
        query = dict(parse_qsl(urlsplit(path).query))
        name += "".join(
            f"-{key}" + (f"-{query[key]}" if key in _VALUES else "") for key in _PARAMETERS if key in query
        )
        if name in seen:
            continue
        seen.add(name)
        response = page.goto(urljoin(base, path))
        if response is None or "text/html" not in response.headers.get("content-type", ""):
            continue
        if response.status != 200:
            faults.append(f"{path}: status {response.status}")
            continue
        if len(response.body()) > _MAX_PAGE_BYTES:
            faults.append(f"{path}: {len(response.body())} bytes")
        _take(page, folder / name, faults)
        inside = (f"/portal/{organization}", f"/organizations/{organization}/account")
        for link in page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            target = urlsplit(link)
            if link.startswith(base) and target.path.startswith(inside) and not _SKIPPED.search(target.path):
                waiting.append(f"{target.path}?{target.query}" if target.query else target.path)


def _take(page: Any, path: Path, faults: list[str]) -> None:
    page.evaluate(AXE_SCRIPT)
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=f"{path}.{width}.{scheme}.png", full_page=True)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            faults.append(f"{path.name}: wider than {width} px")
        if (width, scheme) not in _AUDITED:
            continue
        violations = page.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
        faults += [
            f"{path.name}: {width} {scheme}: {found['id']}: {found['nodes'][0]['html'][:160]}"
            for found in violations
        ]


def _listen(page: Any, faults: list[str]) -> None:
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda message: (
            faults.append(f"{page.url}: {message.text}")
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"), *sys.argv[2:3]), 1))
