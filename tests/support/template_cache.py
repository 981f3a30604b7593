"""The compiled templates of all processes of tests, also of earlier runs."""

from __future__ import annotations

from pathlib import Path

from jinja2 import FileSystemBytecodeCache

_FOLDER = Path(__file__).resolve().parents[2] / ".pytest_cache" / "templates"


def template_cache() -> FileSystemBytecodeCache:
    """Return the cache: to compile a template takes longer than to render it. It notices a changed text."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    return FileSystemBytecodeCache(str(_FOLDER))
