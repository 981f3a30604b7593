"""Effects of settings: each is read somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.rules.organizations import settings
from app.rules.organizations.settings_table import SETTINGS

ROOT = Path(__file__).parents[3]
# These modules list, validate or count settings, which has no effect.
TABLES = {
    "settings_table.py", "settings_effect.py", "setting_topics.py", "settings_impact.py", "lock_out.py",
}  # fmt: skip
SOURCES = [
    path.read_text()
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "templates").rglob("*.html")]
    if path.name not in TABLES
    and path != ROOT / "app/rules/organizations/settings.py"
    and "openapi" not in path.parts
]


def _is_read(path: str) -> bool:
    """Return whether a source file reads the setting."""
    *_, section, name = path.split(".")
    in_template = re.compile(rf"\b{section}\.{name}\b")
    subscript = re.compile(rf'\["{name}"\]|get\("{name}"|= "{name}"|"{name}",')
    return any(
        (re.search(rf'["_]{section}"', text) and subscript.search(text)) or in_template.search(text)
        for text in SOURCES
    )


@pytest.mark.parametrize("path", SETTINGS)
def test_each_setting_is_read(path: str) -> None:
    assert _is_read(path)


def test_defaults_are_valid() -> None:
    assert settings.merge_settings({}, settings.default_settings()) == {}
