"""The session cookie is a random value, of which only the digest is stored (SS-1)."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from flask import Flask

from app.rules.identifiers import SESSION, digest, parse_token
from tests.factories import Factory
from tests.support.databases import Database

ROOT = Path(__file__).resolve().parents[2]
# Cookies that Flask-Login sets by itself.
UNUSED = {"login_user", "logout_user", "confirm_login", "login_fresh", "encode_cookie"}


def test_ss1_row_holds_only_the_digest_of_256_random_bits(
    app: Flask, make: Factory, database: Database
) -> None:
    ada = make.user(make.organization())
    values = [make.sign_in(ada).token for _ in range(2)]
    rows = database.query("SELECT * FROM sessions")
    kept = {bytes(cell) for row in rows for cell in row if isinstance(cell, (bytes, bytearray))}
    for value in values:
        parsed = parse_token(value)
        assert parsed is not None and parsed.kind == SESSION
        assert digest(value) == hashlib.sha256(value.encode()).digest() and digest(value) in kept
        assert not [cell for row in rows for cell in row if value in str(cell)]
    # 43 random characters between the routing key and the checksum: two values have only these parts in common.
    first, second = (value[-50:-7] for value in values)
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 15


def test_ss1_flask_login_sets_no_cookie() -> None:
    """Flask-Login's cookie would identify the user for a year; our cookie names a session that can be ended."""
    used = {
        alias.name
        for path in (ROOT / "app").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flask_login")
        for alias in node.names
    }
    assert used and not used & UNUSED


def test_ss1_flask_login_cookie_is_ignored(app: Flask, make: Factory) -> None:
    """A browser with such a cookie, even one signed with our own key, is anonymous."""
    acme = make.organization()
    ada = make.user(acme)
    http = app.test_client()
    with http.session_transaction() as flask_session:
        flask_session["_user_id"] = ada.public_id
        flask_session["_fresh"] = True
    http.set_cookie("remember_token", f"{ada.public_id}|{'0' * 128}", domain="localhost")
    answer = http.get(f"/organizations/{acme.slug}/account/sessions")
    assert answer.status_code == 303 and "/login" in answer.headers["Location"]
