"""Effects of settings: each is read somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from app.rules.organizations import settings
from app.rules.organizations.settings_table import SETTINGS

ROOT = Path(__file__).parents[3]
# These modules list, validate or count settings, which has no effect.
TABLES = {
    "settings_table.py", "settings_effect.py", "setting_topics.py", "settings_impact.py", "lock_out.py",
}  # fmt: skip


def _is_read(path: str, sources: list[str]) -> bool:
    """Return whether a source file reads the setting."""
    *_, section, name = path.split(".")
    in_template = re.compile(rf"\b{section}\.{name}\b")
    subscript = re.compile(rf'\["{name}"\]|get\("{name}"|= "{name}"|"{name}",')
    return any(
        (re.search(rf'["_]{section}"', text) and subscript.search(text)) or in_template.search(text)
        for text in sources
        if name in text
    )


def test_each_setting_is_read() -> None:
    files = [*(ROOT / "app").rglob("*.py"), *(ROOT / "templates").rglob("*.html")]
    sources = [
        path.read_text()
        for path in files
        if path.name not in TABLES
        and path != ROOT / "app/rules/organizations/settings.py"
        and "openapi" not in path.relative_to(ROOT).parts
    ]
    assert [path for path in SETTINGS if not _is_read(path, sources)] == []


def test_defaults_are_valid() -> None:
    assert settings.merge_settings({}, settings.default_settings()) == {}
