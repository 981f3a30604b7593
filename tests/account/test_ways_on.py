"""A refusal on a page of an account leads on to where it can be mended."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("path", "way", "label"),
    [
        ("/reset/unknown", "/forgot", "Ask for a new link"),
        ("/confirm/unknown", "/login", "Back to the sign-in page"),
        ("/invite/unknown", "/login", "Back to the sign-in page"),
        ("/register", "/login", "Back to the sign-in page"),
    ],
)
def test_stranger_is_led_to_what_can_be_done(
    visitor: Any, acme: Any, path: str, way: str, label: str
) -> None:
    home = f"/organizations/{acme.slug}"
    answer = visitor.get(home + path)

    assert answer.status_code in {403, 409}
    assert f'href="{home}{way}">{label}</a>' in answer.text


def test_an_ended_link_that_confirms_an_address_leads_to_where_another_is_asked_for(
    visitor: Any, acme: Any, ada: Any
) -> None:
    visitor.sign_in(ada)
    home = f"/organizations/{acme.slug}"
    answer = visitor.get(f"{home}/confirm-address/unknown")
    assert answer.status_code == 409
    assert f'href="{home}/account/email">Ask for a new link</a>' in answer.text


def test_people_are_answered_with_pages_wherever_they_may_be(visitor: Any, acme: Any) -> None:
    for path in ("/forgot", "/reset/x", "/confirm/x", "/confirm-address/x", "/login/verify"):
        answer = visitor.http.delete(f"/organizations/{acme.slug}{path}", headers={"Accept": "text/html"})
        assert (answer.status_code, answer.mimetype) == (405, "text/html"), path


def test_pages_below_another_lead_back_to_it(visitor: Any, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    base = f"/organizations/{acme.slug}/account"
    below = {
        "/profile": ("/email",),
        "/security": ("/password", "/security/app", "/security/recovery-codes", "/security/passkeys"),
    }
    for way, paths in below.items():
        for path in paths:
            page = visitor.get(base + path).text
            crumbs = page[page.index('class="crumbs"') : page.index("</ol>")]
            assert f'href="{base}{way}"' in crumbs, path
            # The entry of the navigation that it belongs to is marked.
            assert f'<a href="{base}{way}" aria-current="page">' in page, path


def test_unknown_organization_leads_to_the_choice_of_one(visitor: Any, acme: Any) -> None:
    assert 'href="/login">Choose an organization</a>' in visitor.get("/organizations/none/login").text
