"""The logo of an organization: upload, display on every page, removal."""

from __future__ import annotations

import re

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.organizations.branding import MAX_LOGO_BYTES
from app.operations.tokens.revocation import revoke_token
from tests.factories import Factory, bearer_header
from tests.support.answers import version_of
from tests.support.databases import Database
from tests.support.dpop import Prover
from tests.support.pictures import PNG, SVG, bomb, picture
from tests.support.request_bodies import BodyWithCallback


def test_logo_is_set_served_and_removed(http: FlaskClient, make: Factory) -> None:
    """PO-2: served from this origin, re-encoded, and cached permanently."""
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}"
    answer = http.put(f"{path}/logo", data=PNG, content_type="image/png", headers=headers)
    assert answer.status_code == 200, answer.text
    address = answer.get_json()["data"]["branding"]["logo"]
    assert answer.get_json()["meta"]["changed"] == ["branding.logo"]
    assert version_of(answer) == version_of(http.get(f"{path}/settings", headers=headers))
    image = http.get(address)
    assert (image.status_code, image.mimetype) == (200, "image/png")
    assert image.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert image.headers["X-Content-Type-Options"] == "nosniff"
    assert image.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Set-Cookie" not in image.headers and image.data != PNG
    gone = http.delete(f"{path}/logo", headers=headers)
    assert gone.get_json()["data"]["branding"]["logo"] is None
    assert http.get(address).status_code == 404


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (bomb(), "image/png", 400, "invalid_image"),
        (SVG, "image/png", 400, "invalid_image"),
        (SVG, "image/svg+xml", 415, "unsupported_media_type"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
        (b"", "image/png", 400, "invalid_image"),
        (b"\0" * (MAX_LOGO_BYTES + 1), "image/png", 413, "too_large"),
    ],
    ids=["a bomb", "a program", "a program by its name", "no picture", "nothing", "too much"],
)
def test_invalid_image_is_rejected(
    http: FlaskClient, make: Factory, body: bytes, kind: str, status: int, code: str
) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}"
    answer = http.put(f"{path}/logo", data=body, content_type=kind, headers=headers)
    assert (answer.status_code, answer.get_json()["error"]) == (status, code)
    assert http.get(f"{path}/settings", headers=headers).get_json()["data"]["branding"]["logo"] is None


def test_image_within_size_limit_is_accepted(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    sent = picture(size=(600, 600), kind="PNG")
    padded = sent + b"\0" * (MAX_LOGO_BYTES - len(sent))
    headers = bearer_header(make.bearer(acme))
    answer = http.put(
        f"/organizations/{acme.slug}/logo", data=padded, content_type="image/png", headers=headers
    )
    assert answer.status_code == 200, answer.text


def test_stale_if_match_changes_nothing(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers = bearer_header(make.bearer(acme)) | {"If-Match": '"7"'}
    path = f"/organizations/{acme.slug}/logo"
    assert http.put(path, data=PNG, content_type="image/png", headers=headers).status_code == 412
    assert http.delete(path, headers=headers).status_code == 412


def test_token_revoked_during_upload_sets_no_logo(
    app: Flask, http: FlaskClient, make: Factory, database: Database
) -> None:
    """SS-5: an upload may take minutes."""
    acme = make.organization()
    bearer, actor = make.bearer(acme), make.actor(acme)

    def revoke() -> None:
        with app.app_context():
            revoke_token(actor, bearer)

    answer = http.put(
        f"/organizations/{acme.slug}/logo",
        content_type="image/png",
        headers=bearer_header(bearer),
        environ_overrides=BodyWithCallback(PNG, revoke).environment,
    )
    assert answer.status_code == 401, answer.text
    assert database.count("organization_logos") == 0


def test_bound_token_needs_one_proof_per_upload(http: FlaskClient, make: Factory) -> None:
    """DC-6: the caller is authenticated again after the upload, although a proof can be used only once."""
    acme, prover = make.organization(), Prover()
    headers = make.machine(acme).basic | prover.headers("POST", "http://localhost/oauth/token")
    token = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=headers).get_json()
    path = f"/organizations/{acme.slug}/logo"
    headers = prover.headers("PUT", f"http://localhost{path}", access_token=token["access_token"])
    assert http.put(path, data=PNG, content_type="image/png", headers=headers).status_code == 200
    assert http.put(path, data=PNG, content_type="image/png", headers=headers).status_code == 401


PAGES = {
    "sign-in": "login",
    "sign-up": "register",
    "forgotten password": "forgot",
    "device": "device",
    "sign-out": "logout",
    "an error": "invite/nothing",
    "an unknown app": "oauth/authorize?client_id=nobody",
}


@pytest.mark.parametrize("page", PAGES)
def test_logo_is_shown_on_every_public_page(http: FlaskClient, make: Factory, page: str) -> None:
    acme = make.organization(settings={"authentication": {"registration": {"mode": "open"}}})
    sent = http.put(
        f"/organizations/{acme.slug}/logo",
        data=PNG,
        content_type="image/png",
        headers=bearer_header(make.bearer(acme)),
    )
    address = sent.get_json()["data"]["branding"]["logo"]
    text = http.get(
        f"/organizations/{acme.slug}/{PAGES[page]}", headers={"Accept": "text/html"}, follow_redirects=True
    ).text
    assert re.findall(r'<img id="brand-logo" src="([^"]+)"', text) == [address], text[:4000]
