"""The body of POST /api/v1/revoke, field by field (RV-1, RV-3, JS-4)."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.errors import InvalidInput
from app.rules.tokens.revocation import revocation_request
from tests.support.cases import each

GOOD = {"organization_id": "acme", "token_type": "access_token", "token": "gth_at_x"}


def test_valid_body_is_accepted() -> None:
    for token_type in ("access_token", "refresh_token"):
        assert revocation_request(GOOD | {"token_type": token_type}).token_type == token_type


@each("name", GOOD)
@each(
    ("value", "code"),
    [
        (None, "wrong_type"),
        (0, "wrong_type"),
        (True, "wrong_type"),
        (["x"], "wrong_type"),
        ({}, "wrong_type"),
        ("", "too_short"),
    ],
)
def test_rv3_js4_each_field_must_be_a_nonempty_string(name: str, value: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        revocation_request(GOOD | {name: value})
    assert [(error.field, error.code) for error in refusal.value.errors] == [(name, code)]


def test_all_missing_fields_are_named() -> None:
    with pytest.raises(InvalidInput) as refusal:
        revocation_request({})
    assert {error.field: error.code for error in refusal.value.errors} == dict.fromkeys(GOOD, "required")


def test_parameter_name_of_rfc_7009_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput) as refusal:
        revocation_request(GOOD | {"token_type": "id_token", "token_type_hint": "access_token"})
    codes = {error.field: error.code for error in refusal.value.errors}
    assert codes == {"token_type_hint": "unknown_field", "token_type": "not_allowed"}
