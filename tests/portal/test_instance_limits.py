"""Instance limits: pages for root, with a preview."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.organizations.instance_limits import BOUNDABLE

TTL = "oauth.access_token.ttl_seconds"
GRANTS = "oauth.grant_types"


@pytest.fixture
def op(make: Any, portal_user: Any) -> Any:
    return portal_user(make.root(), "admin")


def test_every_limited_setting_has_page(op: Any) -> None:
    page = op.get("/instance-limits").text
    assert all(f"/portal/root/instance-limits/{path}" in page for path in BOUNDABLE)
    for path in (TTL, GRANTS, "oauth.require_par"):
        assert op.get(f"/instance-limits/{path}").status_code == 200
    assert op.get("/instance-limits/branding.display_name").status_code == 404


def test_limit_links_to_setting(op: Any) -> None:
    assert 'href="/portal/root/settings/tokens"' in op.get("/instance-limits").text
    page = op.get(f"/instance-limits/{TTL}").text
    element_id = TTL.replace(".", "-")
    assert f'href="/portal/root/settings/tokens#{element_id}"' in page and "At most 86400 (1 day)." in page
    assert f'id="{element_id}"' in op.get("/settings/tokens").text


def test_limit_is_previewed_saved_and_removed(op: Any, make: Any, portal_user: Any) -> None:
    ada = portal_user(make.organization("acme"))
    path = f"/instance-limits/{TTL}"
    op.get(path)
    op.send(path, min="", max="900", preview="1", version=op.hidden("version"))
    assert "The value would change for 3 organizations of 3." in op.text
    op.send(path, min="", max="900", save="1", version=op.hidden("version"))
    op.follow()
    assert "Saved. The change is live." in op.text and "at most 15 minutes" in op.text
    assert "From 1 minute to 15 minutes, as limited by this instance" in ada.get("/settings/tokens").text
    op.get(path)
    op.send(path, remove="1", version=op.hidden("version"))
    op.follow()
    assert "at most 15 minutes" not in op.text


def test_invalid_numbers_and_stale_forms_are_rejected(op: Any) -> None:
    path = f"/instance-limits/{TTL}"
    op.get(path)
    version = op.hidden("version")
    assert op.send(path, min="soon", max="1", save="1", version=version).status_code == 400
    assert 'id="min-error"' in op.page.text and 'id="max-error"' in op.page.text
    op.send(path, min="", max="900", save="1", version=version)
    assert op.send(path, min="", max="600", save="1", version=version).status_code == 412
    assert "Someone changed the limits" in op.text


def test_unchecked_value_is_not_allowed(op: Any) -> None:
    path = "/instance-limits/oauth.require_par"
    op.get(path)
    op.send(path, allowed="true", save="1", version=op.hidden("version"))
    op.follow()
    assert "only on" in op.text


def test_pages_exist_only_for_root(make: Any, portal_user: Any) -> None:
    ada = portal_user(make.organization("acme"))
    assert ada.get("/instance-limits").status_code == ada.get(f"/instance-limits/{TTL}").status_code == 404
    auditor = portal_user(make.root(), "auditor")
    assert "read-only access" in auditor.get(f"/instance-limits/{TTL}").text
    assert auditor.send(f"/instance-limits/{TTL}", max="900", save="1").status_code == 403
