"""The search of the portal: exact ids lead to their page, other text finds what the actor may see."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("cli_aaaaaaaa_01m83zp94aehz9733wdmmm9d6d", "/clients/cli_aaaaaaaa_01m83zp94aehz9733wdmmm9d6d"),
        # Nobody has this ID: a deleted user has no page, and is in the audit log.
        ("usr_01m83zp94aehz9733wdmmm9d6d", "/audit?target=usr_01m83zp94aehz9733wdmmm9d6d"),
        ("evt_01m83zp94aehz9733wdmmm9d6d", "/audit/evt_01m83zp94aehz9733wdmmm9d6d"),
        ("req_01m83zp94aehz9733wdmmm9d6d", "/logs?request_id=req_01m83zp94aehz9733wdmmm9d6d"),
        ("flr_01m83zp94aehz9733wdmmm9d6d", "/logs/flr_01m83zp94aehz9733wdmmm9d6d"),
        ("res_01m83zp94aehz9733wdmmm9d6d", "/apis/res_01m83zp94aehz9733wdmmm9d6d"),
    ],
)
def test_exact_id_leads_to_its_page(ada: Any, query: str, path: str) -> None:
    answer = ada.http.get(f"/portal/acme/search?q={query}")
    assert (answer.status_code, answer.location) == (303, f"/portal/acme{path}")


def test_search_finds_clients_users_settings_and_pages(ada: Any, acme: Any, make: Any) -> None:
    make.client(acme, name="Orchard sessions")
    user = make.user(acme, email="sessions@acme.example")
    found = ada.http.get(f"/portal/acme/search?q={user.public_id}")
    assert found.location == f"/portal/acme/users/{user.public_id}"
    ada.get("/search?q=session")
    for text in ("Orchard sessions", "sessions@acme.example", "Idle timeout"):
        assert text in ada.text
    ada.get("/search?q=audit")
    assert "/portal/acme/audit" in ada.page.text and ">Pages<" in ada.page.text
    ada.get("/search?q=nothing-has-this-name")
    assert "No results" in ada.text
    ada.get("/search")
    assert "What are you looking for?" in ada.text


def test_search_shows_a_developer_only_their_own(acme: Any, portal_user: Any, make: Any) -> None:
    make.client(acme, name="Orchard of another")
    make.user(acme, email="orchard@acme.example")
    grace = portal_user(acme, "developer")
    grace.get("/search?q=orchard")
    assert "No results" in grace.text


@pytest.mark.parametrize("query", ["cli_<script>", "usr_../../x", "req_a?b=c", "%", "'", "x" * 500])
def test_odd_text_is_searched_as_text(ada: Any, query: str) -> None:
    answer = ada.http.get("/portal/acme/search", query_string={"q": query})
    assert answer.status_code == 200 and "<script>" not in answer.text
