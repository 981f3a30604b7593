"""The documentation names only files, headings and settings that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
from flask import Flask

from app import cli

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w./-])(?:app|docs|migrations|script|templates|tests)/[\w./-]*[\w/]")
# A command of Flask and its subcommand, if that is a word.
COMMAND = re.compile(r"(?:flask --app wsgi|`flask|`gatehouse) ([a-z][a-z-]*)(?: ([a-z][a-z-]*)\b)?")
SETTING = re.compile(r"GATEHOUSE_[A-Z_]*[A-Z]")
FOR_DEVELOPERS = frozenset({"architecture.md", "contributing.md", "data-model.md"})
ENDINGS = ("py", "html", "sh")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "-z", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def _documents() -> Iterator[tuple[Path, str]]:
    """Return the text of each document; of the changelog only what is not released yet."""
    for path in _tracked("*.md"):
        text = path.read_text()
        if path.name == "CHANGELOG.md":
            text = text.partition("## [Unreleased]")[2].partition("\n## ")[0]
        if "templates" not in path.parts:
            yield path, text


def _anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings() -> None:
    broken = []
    for document, text in _documents():
        for link in LINK.findall(FENCE.sub("", text)):
            name, _, anchor = link.partition("#")
            target = document.parent / name if name else document
            if "://" in name or name.startswith("mailto:"):
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{document.relative_to(ROOT)}: {link}")
    assert not broken


def test_named_files_exist() -> None:
    missing = [
        f"{document.relative_to(ROOT)}: {name}"
        for document, text in _documents()
        for name in PATH.findall(text)
        if not (ROOT / name).exists()
    ]
    assert not missing


def test_named_settings_exist() -> None:
    code = "\n".join(path.read_text() for path in _tracked("app/*.py", "wsgi.py", "script/*", "tests/*.py"))
    missing = {
        f"{document.relative_to(ROOT)}: {name}"
        for document, text in _documents()
        for name in SETTING.findall(text)
        if name not in code
    }
    assert not missing


def test_named_commands_exist() -> None:
    app = Flask("commands")
    cli.register(app)
    known = dict.fromkeys(("db", "run", "routes", "serve")) | {
        name: set(command.commands) if isinstance(command, click.Group) else None
        for name, command in app.cli.commands.items()
    }
    missing = {
        f"{document.relative_to(ROOT)}: {name} {sub}"
        for document, text in _documents()
        for name, sub in COMMAND.findall(text)
        if name not in known or (sub and sub not in (known[name] or {sub}))
    }
    assert not missing
    [paragraph] = re.findall(r"^The command line,.*", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert not [name for name in app.cli.commands if f"`{name}" not in paragraph]


def test_named_parts_of_the_code_exist() -> None:
    """Functions, columns and files in the documents for developers."""
    folders = ("app", "migrations", "script", "templates", "tests")
    texts = [
        path.read_text() for path in _tracked(*(f"{name}/*.{end}" for name in folders for end in ENDINGS))
    ]
    known = set(re.findall(r"\w+", "\n".join([*map(str, _tracked("*")), *texts])))
    missing = {
        f"{document.relative_to(ROOT)}: {name}"
        for document, text in _documents()
        if document.is_relative_to(ROOT / "app") or document.name in FOR_DEVELOPERS
        for span in re.findall(r"`([\w.]+)`", FENCE.sub("", text))
        for name in span.split(".")
        if re.search(r"[a-z]_[a-z]|[a-z][A-Z]", name) and name not in known
    }
    assert not missing
