"""The pages of the portal in German: no English message of the catalog is left on any of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from tests.account.test_languages import GERMAN, language_of, untranslated
from tests.support.pages import Matrix, path_of

# Names of objects of this test's organization that are also messages.
SAME = {"Attribute"}
# Names of scopes, endpoints and causes, which may also be messages.
NAME = re.compile(r"[a-z_]+")
# Guides and the API reference stay in English.
ENGLISH = re.compile(r"/docs(?!/errors)")


@pytest.mark.slow
def test_pages_are_in_german(app: Flask, make: Any) -> None:
    matrix = Matrix(app, make)
    http = app.test_client()
    make.sign_in(make.user(matrix.acme.organization, role="admin"), http)
    found: dict[str, list[str]] = {}
    for endpoint, method, pattern in matrix.pages():
        if method != "GET" or not endpoint.startswith("portal.") or "<organization>" not in pattern:
            continue
        if ENGLISH.search(pattern):
            continue
        page = http.get(path_of(pattern, matrix.acme), headers=GERMAN)
        if page.mimetype != "text/html" or page.status_code == 303:
            continue
        assert language_of(page) == "de", pattern
        if left := [text for text in untranslated(page) if text not in SAME and not NAME.fullmatch(text)]:
            found[pattern] = left
    assert found == {}
