"""Response modes: query for every redirect URI, form_post for web origins, never fragment."""

from __future__ import annotations

import pytest

from app.rules.authorization.authorization_request import (
    FORM_POST,
    QUERY,
    select_response_mode,
    validate_response_mode,
)
from app.rules.errors import AuthorizationError
from tests.support.cases import each

WEB, LOOPBACK, APP = "https://rp.example/cb", "http://127.0.0.1:7/cb", "com.example.app:/cb"


@each(
    ("mode", "asked", "uri"),
    [
        (QUERY, None, WEB),
        (QUERY, "query", WEB),
        (FORM_POST, "form_post", WEB),
        (FORM_POST, "form_post", LOOPBACK),
        (QUERY, None, APP),
        (QUERY, "query", APP),
    ],
)
def test_valid_request_determines_the_mode(mode: str, asked: str | None, uri: str) -> None:
    sent = {"redirect_uri": uri} | ({"response_mode": asked} if asked else {})
    assert (validate_response_mode(sent), select_response_mode(sent)) == (mode, mode)


@each(
    ("asked", "uri"),
    [("fragment", WEB), ("jwt", WEB), ("FORM_POST", WEB), ("query form_post", WEB), ("form_post", APP)],
)
def test_other_modes_are_rejected_by_query(asked: str, uri: str) -> None:
    """OI-3: a form cannot be posted to an app's own scheme."""
    sent = {"redirect_uri": uri, "response_mode": asked}
    with pytest.raises(AuthorizationError) as refused:
        validate_response_mode(sent)
    assert (refused.value.code, select_response_mode(sent)) == ("invalid_request", QUERY)
