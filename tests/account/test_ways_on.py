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


def test_unknown_organization_leads_to_the_choice_of_one(visitor: Any, acme: Any) -> None:
    assert 'href="/login">Choose an organization</a>' in visitor.get("/organizations/none/login").text
