"""The pages of ceilings: for root alone, one setting each, tried out before they are saved."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.organizations.instance_limits import BOUNDABLE

TTL = "oauth.access_token.ttl_seconds"
GRANTS = "oauth.grant_types"


@pytest.fixture
def op(make: Any, person: Any) -> Any:
    return person(make.root(), "admin")


def test_every_setting_that_can_be_bounded_has_its_page(op: Any) -> None:
    page = op.get("/ceilings").text
    assert all(f"/portal/root/ceilings/{path}" in page for path in BOUNDABLE)
    for path in (TTL, GRANTS, "oauth.require_par"):
        assert op.get(f"/ceilings/{path}").status_code == 200
    assert op.get("/ceilings/branding.display_name").status_code == 404


def test_a_ceiling_and_the_setting_that_it_bounds_are_a_click_apart(op: Any) -> None:
    assert 'href="/portal/root/settings/tokens"' in op.get("/ceilings").text
    page = op.get(f"/ceilings/{TTL}").text
    place = TTL.replace(".", "-")
    assert f'href="/portal/root/settings/tokens#{place}"' in page and "Not above 86400 (1 day)." in page
    assert f'id="{place}"' in op.get("/settings/tokens").text


def test_a_ceiling_is_tried_out_saved_shown_and_lifted(op: Any, make: Any, person: Any) -> None:
    ada = person(make.organization("acme"))
    path = f"/ceilings/{TTL}"
    op.get(path)
    op.send(path, min="", max="900", act="preview", version=op.hidden("version"))
    assert (
        "2 organizations of 3 organizations" in op.text or "organizations would have another value" in op.text
    )
    op.send(path, min="", max="900", act="save", version=op.hidden("version"))
    op.follow()
    assert "Saved. It is live now." in op.text and "at most 15 minutes" in op.text
    assert "1 minute to 15 minutes, as this installation allows" in ada.get("/settings/tokens").text
    op.get(path)
    op.send(path, act="lift", version=op.hidden("version"))
    op.follow()
    assert "at most 15 minutes" not in op.text


def test_wrong_numbers_are_explained_at_their_fields_and_stale_forms_refused(op: Any) -> None:
    path = f"/ceilings/{TTL}"
    op.get(path)
    version = op.hidden("version")
    assert op.send(path, min="soon", max="1", act="save", version=version).status_code == 400
    assert 'id="min-error"' in op.page.text and 'id="max-error"' in op.page.text
    op.send(path, min="", max="900", act="save", version=version)
    assert op.send(path, min="", max="600", act="save", version=version).status_code == 400
    assert "meanwhile" in op.text


def test_what_is_unticked_is_not_allowed(op: Any) -> None:
    path = "/ceilings/oauth.require_par"
    op.get(path)
    op.send(path, allowed="true", act="save", version=op.hidden("version"))
    op.follow()
    assert "only on" in op.text


def test_the_pages_are_roots_alone(make: Any, person: Any) -> None:
    ada = person(make.organization("acme"))
    assert ada.get("/ceilings").status_code == ada.get(f"/ceilings/{TTL}").status_code == 404
    auditor = person(make.root(), "auditor")
    assert "not change them" in auditor.get(f"/ceilings/{TTL}").text
    assert auditor.send(f"/ceilings/{TTL}", max="900", act="save").status_code == 403
