"""The claims parameter of OpenID Connect Core 5.5: what is parsed, and which values are invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.rules.authorization.authorization_request import (
    ID_TOKEN,
    USERINFO,
    are_contexts_essential,
    parse_claims,
    requested_contexts,
    requested_names,
    requested_subjects,
    required_scopes,
    restrict_to_scopes,
)
from app.rules.errors import AuthorizationError
from tests.support.cases import each


def parsed(document: Any) -> dict[str, Any] | None:
    return parse_claims(json.dumps(document))


def test_example_of_the_standard_is_parsed() -> None:
    """Core 5.5; unknown, language-tagged and custom claims are ignored."""
    claims = parsed(
        {
            "userinfo": {
                "given_name": {"essential": True},
                "nickname": None,
                "email": {"essential": True},
                "name#ja-Hani-JP": None,
                "http://example.info/claims/groups": None,
            },
            "id_token": {
                "auth_time": {"essential": True},
                "acr": {"values": ["urn:mace:incommon:iap:silver"]},
            },
        }
    )
    assert requested_names(claims, USERINFO) == ("given_name", "nickname", "email")
    assert requested_names(claims, ID_TOKEN) == ("auth_time", "acr")
    assert requested_contexts(claims) == ("urn:mace:incommon:iap:silver",)
    assert not are_contexts_essential(claims)


@each(
    "empty",
    [{}, {"userinfo": None}, {"userinfo": {}}, {"other": {"x": 1}}, {"id_token": {"x": None}}],
)
def test_parameter_without_requests_is_empty(empty: dict[str, Any]) -> None:
    assert parsed(empty) is None
    assert (requested_names(None, USERINFO), requested_subjects(None), requested_contexts(None)) == (
        (),
        None,
        (),
    )
    assert not are_contexts_essential(None)


@each(
    "malformed",
    [
        "",
        "{",
        "[]",
        "null",
        '"userinfo"',
        '{"userinfo": {}, "userinfo": {}}',
        '{"userinfo": []}',
        '{"userinfo": "email"}',
        '{"userinfo": {"email": true}}',
        '{"userinfo": {"email": "x"}}',
        '{"userinfo": {"email": {"essential": "yes"}}}',
        '{"id_token": {"acr": {"values": "urn:x"}}}',
        '{"id_token": {"acr": {"value": 1}}}',
        '{"id_token": {"acr": {"value": "a", "values": ["b"]}}}',
        '{"id_token": {"sub": {"value": "' + "x" * 256 + '"}}}',
        '{"id_token": {"acr": {"values": [' + ",".join(['"x"'] * 21) + "]}}}",
        '{"id_token": ' + "[" * 40 + "]" * 40 + "}",
        '{"userinfo": {"email": NaN}}',
        '{"x": "' + "x" * 9000 + '"}',
    ],
)
def test_malformed_parameter_is_an_invalid_request(malformed: str) -> None:
    with pytest.raises(AuthorizationError) as refused:
        parse_claims(malformed)
    assert refused.value.code == "invalid_request"


@each("place", [USERINFO, ID_TOKEN])
@each("wish", [{"value": "usr_ada"}, {"values": ["usr_ada", "usr_bea"], "essential": True}])
def test_subjects_can_be_requested_in_either_section(place: str, wish: dict[str, Any]) -> None:
    """Core 5.5.1."""
    assert requested_subjects(parsed({place: {"sub": wish}})) == set(wish.get("values", ["usr_ada"]))
    assert requested_subjects(parsed({place: {"sub": {"essential": True}}})) is None


def test_subject_must_satisfy_both_sections() -> None:
    wish = {ID_TOKEN: {"sub": {"values": ["usr_ada", "usr_bea"]}}, USERINFO: {"sub": {"value": "usr_bea"}}}
    assert requested_subjects(parsed(wish)) == {"usr_bea"}


def test_only_essential_acr_is_required() -> None:
    """Core 5.5.1.1."""
    essential = parsed({"id_token": {"acr": {"essential": True, "values": ["a", "b"]}}})
    assert are_contexts_essential(essential) and requested_contexts(essential) == ("a", "b")
    assert not are_contexts_essential(parsed({"userinfo": {"acr": {"essential": True, "value": "a"}}}))
    assert not are_contexts_essential(parsed({"id_token": {"acr": {"essential": True}}}))


def test_claims_do_not_bypass_scopes() -> None:
    """A claim requested by name requires its scope: registered for the client, and consented to by the user."""
    claims = parsed(
        {"userinfo": {"email": None, "nickname": None}, "id_token": {"address": None, "sub": None}}
    )
    assert required_scopes(claims) == ("email", "profile", "address")
    assert restrict_to_scopes(claims, ("openid", "profile")) == {
        "userinfo": {"nickname": None},
        "id_token": {"sub": None},
    }
    assert restrict_to_scopes(claims, ()) == {"id_token": {"sub": None}}
    assert restrict_to_scopes(None, ("email",)) is None
