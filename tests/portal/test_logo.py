"""Uploading and removing the logo of an organization."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from flask import Flask
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from app.operations.sign_in.sessions import end_sessions_of_user
from tests.support.databases import Database
from tests.support.pictures import PNG, SVG, bomb, picture
from tests.support.request_bodies import BodyWithCallback

PAGE = "/settings/branding/logo"


def upload(portal_user: Any, content: bytes, name: str = "logo.png") -> int:
    portal_user.get(PAGE)
    return int(portal_user.send(PAGE, logo=(io.BytesIO(content), name)).status_code)


def noise() -> bytes:
    """Return a picture that stays larger than 64 KiB when compressed."""
    from PIL import Image

    out = io.BytesIO()
    Image.frombytes("RGB", (350, 350), os.urandom(367_500)).save(out, "PNG")
    return out.getvalue()


def test_large_image_is_uploaded_shown_and_removed(ada: Any, database: Database) -> None:
    content = noise()
    assert len(content) > 256 * 1024
    ada.get("/settings/branding")
    assert "Add a logo" in ada.text
    assert upload(ada, content) == 303
    page = ada.follow()
    assert '<img id="brand-logo" src="/logos/organizations/' in page.text and "Saved" in ada.text
    ada.get("/settings/branding")
    assert "Change logo" in ada.text
    ada.get(PAGE)
    assert ada.send(f"{PAGE}/remove").status_code == 303
    assert "brand-logo" not in ada.follow().text
    assert database.count("organization_logos") == 0


@pytest.mark.parametrize(
    "content", [SVG, bomb(), b"", picture(kind="GIF")], ids=["svg", "bomb", "empty", "gif"]
)
def test_invalid_image_shows_error_at_field(ada: Any, database: Database, content: bytes) -> None:
    assert upload(ada, content) == 400
    assert "The logo wasn't changed" in ada.text and "This image cannot be used" in ada.text
    assert database.count("organization_logos") == 0


def test_missing_file_shows_error_at_field(ada: Any) -> None:
    ada.get(PAGE)
    assert ada.send(PAGE).status_code == 400
    assert "Choose a file." in ada.text


def test_file_over_size_limit_is_rejected(ada: Any, database: Database) -> None:
    ada.get(PAGE)
    large = FileStorage(io.BytesIO(PNG + b"\0" * 2_000_000), "logo.png")
    fields = {"csrf_token": ada.hidden("csrf_token"), "logo": large}
    boundary, body = encode_multipart(fields)
    answer = ada.http.post(
        ada.address(PAGE),
        data=body,
        content_type=f"multipart/form-data; boundary={boundary}",
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    assert answer.status_code == 413
    assert database.count("organization_logos") == 0


def test_session_that_ends_during_upload_sets_no_logo(
    app: Flask, ada: Any, acme: Any, database: Database
) -> None:
    """SS-5: an upload can take minutes."""
    ada.get(PAGE)
    fields = {
        "csrf_token": ada.hidden("csrf_token"),
        "logo": FileStorage(io.BytesIO(PNG), "logo.png"),
    }
    boundary, content = encode_multipart(fields)

    def sign_out() -> None:
        with app.app_context():
            assert end_sessions_of_user(acme.id, ada.user.id) == 1

    # The test client would otherwise choose another boundary.
    kind = {"CONTENT_TYPE": f"multipart/form-data; boundary={boundary}"}
    answer = ada.http.post(
        ada.address(PAGE),
        headers={"Sec-Fetch-Site": "same-origin"},
        environ_overrides=BodyWithCallback(content, sign_out).environment | kind,
    )
    assert answer.status_code == 303 and "/organizations/acme/login" in answer.headers["Location"]
    assert database.count("organization_logos") == 0


def test_auditor_sees_logo_but_cannot_upload(acme: Any, portal_user: Any, database: Database) -> None:
    auditor, member = portal_user(acme, "auditor"), portal_user(acme, None)
    assert auditor.get(PAGE).status_code == 200
    assert 'type="file"' not in auditor.page.text
    assert upload(auditor, PNG) == 403
    # Their forms have the ordinary size limit.
    assert upload(auditor, noise()) == 413
    assert member.get(PAGE).status_code in (403, 404)
    assert database.count("organization_logos") == 0
