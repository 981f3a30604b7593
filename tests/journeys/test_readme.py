"""README.md: the tour runs as written, and the table of settings matches the code."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.config import SETTINGS
from tests.support import process
from tests.support.browser import sign_in
from tests.support.server_script import ROOT, copy_to, started

README = (ROOT / "README.md").read_text()
PASSWORD = "seven tall herons by the weir"


def tour() -> str:
    """Return every command between "Tour" and the next heading."""
    section = re.split(r"^## ", README, flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith("Tour\n")]
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@pytest.mark.browser
def test_tour_runs_as_written(tmp_path: Path, page: Any) -> None:
    folder = copy_to(tmp_path)
    printed: list[str] = []
    (folder / "tour.sh").write_text(f"set -eu\n{tour()}")
    with started(folder) as server:
        server.answers()
        environment = {"PATH": os.environ["PATH"], "BASE": server.url, "PORT": str(process.free_port())}
        environment |= {"GATEHOUSE_BASE_URL": server.url}
        with subprocess.Popen(
            ["sh", "tour.sh"], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as typed:  # fmt: skip
            assert typed.stdout is not None
            assert typed.stderr is not None
            for line in typed.stdout:
                printed.append(line)
                if "/invite/" in line:
                    accept_invitation(page, line.strip())
                elif "/oauth/authorize?" in line:
                    sign_in_and_allow(page, line.strip())
            errors = typed.stderr.read()
        assert typed.returncode == 0, errors + "".join(printed) + server.output()
        server.end()
    text = "".join(printed)
    assert '"id": "acme"' in text
    assert '"email": "ada@example.com"' in text
    assert '"hint"' in text
    assert '"data": "Token revoked"' in text
    assert text.endswith("userinfo now answers 401\n")


def accept_invitation(page: Any, link: str) -> None:
    page.goto(link)
    for name in page.eval_on_selector_all(
        "input[type=password]", "fields => fields.map(field => field.name)"
    ):
        page.fill(f"input[name={name}]", PASSWORD)
    page.click("main form button")
    page.wait_for_load_state()


def sign_in_and_allow(page: Any, address: str) -> None:
    page.goto(address)
    if page.locator("#password").count():
        sign_in(page, "ada@example.com")
    page.click("#consent-allow")
    page.wait_for_url("**/callback?**")
    assert "Back to the terminal." in page.content()


def test_settings_table_matches_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+?) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(setting.variable, setting.default, setting.meaning) for setting in SETTINGS]


def test_every_setting_is_used_and_documented() -> None:
    source = "".join(
        path.read_text() for path in (ROOT / "app" / "config").glob("*.py") if path.name != "settings.py"
    )
    read = set(re.findall(r'"((?:GATEHOUSE_|DATABASE_)[A-Z_]+)"', source))
    assert read == {setting.variable for setting in SETTINGS}


def test_every_named_file_exists() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", README)
    named += [
        f"app/{path}" for path in re.findall(r"`((?:rules|operations|api|portal|models)/[\w/]+\.py)`", README)
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_introduction_fits_one_screen() -> None:
    assert len(README.split("## Tour")[0].splitlines()) <= 40
