"""Translation catalogs: complete, compiled and consistent with their messages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from app.rules.languages.translation import ENGLISH, LANGUAGES
from tests.support.cases import each

ROOT = Path(__file__).parents[2]
PARAMETER = re.compile(r"%\((\w+)\)s")


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("catalogs", ROOT / "script/lib/catalogs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


catalogs = _loaded()
OTHERS = [language for language in LANGUAGES if language != ENGLISH]


def test_every_language_has_a_catalog() -> None:
    assert catalogs.languages() == sorted(OTHERS)


@each("language", OTHERS)
@pytest.mark.slow
def test_catalog_is_complete(language: str) -> None:
    """Otherwise run script/translate, and write what it lists."""
    assert catalogs.left_to_do(language) == []


@each("language", OTHERS)
def test_compiled_catalog_is_up_to_date(language: str) -> None:
    compiled = ROOT / "app/translations" / language / "LC_MESSAGES/messages.mo"
    assert compiled.read_bytes() == catalogs.compiled(language)


@each("language", OTHERS)
def test_translation_keeps_parameters_and_elements(language: str) -> None:
    for message in catalogs.catalog(language):
        if not message.id:
            continue
        sentences = message.id if isinstance(message.id, tuple) else (message.id,)
        strings = message.string if isinstance(message.string, tuple) else (message.string,)
        for told in strings:
            known = {name for text in sentences for name in PARAMETER.findall(text)}
            assert set(PARAMETER.findall(told)) <= known, told
            assert "%" not in PARAMETER.sub("", told).replace("%%", "") or not message.python_format, told
        elements = sorted(re.findall(r"</?[a-z]+", sentences[0]))
        assert sorted(re.findall(r"</?[a-z]+", strings[0])) == elements, strings[0]


@each("language", OTHERS)
def test_translation_uses_every_parameter(language: str) -> None:
    lost = [
        message.id
        for message in catalogs.catalog(language)
        if isinstance(message.id, str)
        and set(PARAMETER.findall(message.id)) != set(PARAMETER.findall(str(message.string)))
    ]
    assert lost == []
