"""Claims beyond the standard ones: groups, roles in the app, and what is mapped, by scope and target."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, update

from app.extensions import db
from app.models.client import Scope
from app.operations.clients.clients import register_client, update_client
from app.operations.clients.resources import define_resource
from app.operations.organizations.settings import update_settings
from app.operations.users.app_roles import assign_app_role, list_app_role_assignments, remove_app_role
from app.operations.users.groups import add_member, create_group
from app.operations.users.user_changes import update_user
from app.rules.clients import app_claims
from app.rules.errors import InvalidInput
from tests.factories import Factory, bearer_header
from tests.oauth.conftest import REDIRECT_URI, Flow
from tests.oauth.test_id_token import claims_of
from tests.support.cases import each

ROLES = [{"key": "reader"}, {"key": "editor", "name": "Editor"}, {"key": "owner"}]
PERSONAL = ["openid", "profile", "email", "groups", "roles"]
TARGETS = ("id_token", "userinfo", "access_token", "introspection")


@pytest.fixture
def app_flow(flow: Flow) -> Flow:
    """A client with roles whose user is in two groups, an editor by themselves and a reader by a group."""
    other = flow.other_client(
        scopes=PERSONAL,
        access_token_format="jwt",
        app_roles=ROLES,
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
    )
    actor, slug = other.make.actor(other.organization), other.organization.slug
    with other.app.app_context():
        made = [create_group(actor, slug, {"name": name}).public_id for name in ("Pickers", "Drivers")]
        for group in made:
            add_member(actor, slug, group, {"user_id": other.user.public_id})
        assign(other, "editor", user_id=other.user.public_id)
        assign(other, "reader", user_id=other.user.public_id)
        assign(other, "reader", group_id=made[0])
    return other


def assign(flow: Flow, role: str, **holder: str) -> str:
    actor = flow.make.actor(flow.organization)
    return assign_app_role(actor, flow.client.client_id, {"role": role, **holder}).public_id


def received(flow: Flow, scope: str) -> dict[str, dict[str, Any]]:
    """Return the claims that the app receives in each target."""
    tokens = flow.tokens(scope=scope)
    token = tokens["access_token"]
    answer = flow.http.get(f"{flow.issuer}/oauth/userinfo", headers=bearer_header(token))
    assert answer.status_code == 200, answer.text
    return {
        "id_token": claims_of(flow, tokens["id_token"]),
        "userinfo": answer.get_json(),
        "access_token": claims_of(flow, token),
        "introspection": flow.introspect(token),
    }


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("openid profile email", {}),
        ("openid groups", {"groups": ["Drivers", "Pickers"]}),
        ("openid roles", {"roles": ["editor", "reader"]}),
        ("openid groups roles", {"groups": ["Drivers", "Pickers"], "roles": ["editor", "reader"]}),
    ],
)
def test_scopes_release_groups_and_roles_in_every_target(
    app_flow: Flow, scope: str, expected: dict[str, Any]
) -> None:
    """RFC 9068 section 2.2.3.1."""
    for target, claims in received(app_flow, scope).items():
        assert {name: claims[name] for name in ("groups", "roles") if name in claims} == expected, target


def test_scope_that_belongs_to_an_api_releases_no_groups(app_flow: Flow) -> None:
    """Release 0.1 did not reserve the name, and users allowed what the API says about the scope."""
    with app_flow.app.app_context():
        actor = app_flow.make.actor(app_flow.organization)
        db.session.execute(delete(Scope).where(Scope.name == "groups"))
        db.session.commit()
        api = {"identifier": "https://teams.example", "name": "Teams", "scopes": [{"name": "teams"}]}
        define_resource(actor, api)
        db.session.execute(update(Scope).where(Scope.name == "teams").values(name="groups"))
        db.session.commit()
    for target, claims in received(app_flow, "openid groups roles").items():
        assert "groups" not in claims and claims["roles"] == ["editor", "reader"], target


def test_roles_are_those_in_the_client_of_the_token(app_flow: Flow) -> None:
    other = app_flow.other_client(
        scopes=PERSONAL, app_roles=ROLES, trust="first_party", redirect_uris=[REDIRECT_URI]
    )
    with other.app.app_context():
        assign(other, "owner", user_id=other.user.public_id)
    assert other.introspect(other.tokens(scope="openid roles")["access_token"])["roles"] == ["owner"]
    stranger = Flow(app_flow.app, app_flow.http, app_flow.make, app_flow.client, app_flow.user)
    assert received(stranger, "openid roles")["id_token"]["roles"] == ["editor", "reader"]


def test_user_without_groups_and_roles_has_empty_lists(flow: Flow) -> None:
    other = flow.other_client(
        scopes=PERSONAL, access_token_format="jwt", trust="first_party", redirect_uris=[REDIRECT_URI]
    )
    for target, claims in received(other, "openid groups roles").items():
        assert (claims["groups"], claims["roles"]) == ([], []), target


def test_minimal_id_token_has_neither_groups_nor_roles(app_flow: Flow) -> None:
    with app_flow.app.app_context():
        actor = app_flow.make.system(app_flow.organization)
        update_client(actor, app_flow.client.client_id, {"id_token_claims": "minimal"})
    claims = received(app_flow, "openid groups roles")
    assert not {"groups", "roles"} & set(claims["id_token"])
    assert claims["userinfo"]["roles"] == ["editor", "reader"]


def test_userinfo_and_introspection_are_live_and_a_removed_role_has_no_assignments(app_flow: Flow) -> None:
    token = app_flow.tokens(scope="openid roles")["access_token"]
    client_id, actor = app_flow.client.client_id, app_flow.make.actor(app_flow.organization)
    with app_flow.app.app_context():
        update_client(actor, client_id, {"app_roles": [{"key": "editor"}]})
        update_client(actor, client_id, {"app_roles": ROLES})
    assert app_flow.introspect(token)["roles"] == ["editor"]
    assert claims_of(app_flow, token)["roles"] == ["editor", "reader"]
    with app_flow.app.app_context():
        [left] = list_app_role_assignments(actor, client_id).items
        remove_app_role(actor, client_id, left.public_id)
    answer = app_flow.http.get(f"{app_flow.issuer}/oauth/userinfo", headers=bearer_header(token))
    assert answer.get_json()["roles"] == []


ATTRIBUTES = [
    {"key": "department", "name": "Department", "type": "string"},
    {"key": "badge", "name": "Badge", "type": "integer", "scope": "email"},
    {"key": "empty", "name": "Empty", "type": "string"},
]
MAPPINGS: list[dict[str, Any]] = [
    {"claim": "https://acme.example/department", "source": "attributes.department"},
    {"claim": "badge", "source": "attributes.badge", "targets": ["introspection"]},
    {"claim": "nothing", "source": "attributes.empty"},
    {"claim": "permissions", "source": "roles", "targets": ["id_token", "access_token"]},
    {"claim": "mail", "source": "email", "targets": ["access_token", "userinfo"]},
    {"claim": "name", "source": "attributes.department", "targets": ["userinfo"]},
    {"claim": "realm_access.roles", "source": "roles", "targets": ["access_token"]},
    {"claim": "realm_access.in.groups", "source": "groups", "targets": ["access_token"]},
]


@pytest.fixture
def mapped(app_flow: Flow) -> Flow:
    """A client that also receives claims from attributes, roles and the email address."""
    actor, slug = app_flow.make.actor(app_flow.organization), app_flow.organization.slug
    with app_flow.app.app_context():
        update_settings(actor, slug, {"user_profile": {"attributes": ATTRIBUTES}})
        values = {"department": "Fruit", "badge": 7}
        update_user(actor, app_flow.user.public_id, {"attributes": values})
        update_client(actor, app_flow.client.client_id, {"claim_mappings": MAPPINGS})
    return app_flow


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("openid", {}),
        (
            "openid profile",
            {
                "id_token": {"https://acme.example/department": "Fruit"},
                "userinfo": {"https://acme.example/department": "Fruit", "name": "Fruit"},
                "access_token": {"https://acme.example/department": "Fruit"},
                "introspection": {"https://acme.example/department": "Fruit"},
            },
        ),
        (
            "openid email",
            {
                "userinfo": {"mail": "EMAIL"},
                "access_token": {"mail": "EMAIL"},
                "introspection": {"badge": 7},
            },
        ),
        (
            "openid roles",
            {
                "id_token": {"permissions": ["editor", "reader"]},
                "access_token": {
                    "permissions": ["editor", "reader"],
                    "realm_access": {"roles": ["editor", "reader"]},
                },
            },
        ),
        ("openid groups", {"access_token": {"realm_access": {"in": {"groups": ["Drivers", "Pickers"]}}}}),
        (
            "openid groups roles",
            {
                "id_token": {"permissions": ["editor", "reader"]},
                "access_token": {
                    "permissions": ["editor", "reader"],
                    "realm_access": {"roles": ["editor", "reader"], "in": {"groups": ["Drivers", "Pickers"]}},
                },
            },
        ),
    ],
)
def test_mapped_claim_needs_the_scope_of_its_source_and_goes_to_its_targets(
    mapped: Flow, scope: str, expected: dict[str, dict[str, Any]]
) -> None:
    names = {app_claims.claim_path(mapping["claim"])[0] for mapping in MAPPINGS}
    for target, claims in received(mapped, scope).items():
        released = {name: value for name, value in claims.items() if name in names}
        if target == "id_token" and "profile" in scope:
            released.pop("name")  # The standard claim.
        wanted = {
            name: mapped.user.email if value == "EMAIL" else value
            for name, value in expected.get(target, {}).items()
        }
        assert released == wanted, target


def test_client_credentials_token_has_no_claims_of_users(mapped: Flow) -> None:
    changes = {"grant_types": ["authorization_code", "client_credentials"], "scopes": [*PERSONAL, "plain"]}
    with mapped.app.app_context():
        update_client(mapped.make.actor(mapped.organization), mapped.client.client_id, changes)
    token = mapped.token(grant_type="client_credentials").get_json()["access_token"]
    names = {"groups", "roles", *(mapping["claim"] for mapping in MAPPINGS)}
    assert not names & set(claims_of(mapped, token)) and not names & set(mapped.introspect(token))


def test_removed_attribute_is_not_released(mapped: Flow) -> None:
    with mapped.app.app_context():
        actor = mapped.make.actor(mapped.organization)
        update_settings(actor, mapped.organization.slug, {"user_profile": {"attributes": []}})
    for claims in received(mapped, "openid profile").values():
        assert "https://acme.example/department" not in claims


@each(
    ("mapping", "field", "code"),
    [
        *(
            ({"claim": name, "source": "groups"}, "claim", "reserved")
            for name in sorted(app_claims.RESERVED_CLAIMS)
        ),
        ({"claim": "a b", "source": "groups"}, "claim", "invalid_claim"),
        ({"claim": "", "source": "groups"}, "claim", "invalid_claim"),
        ({"source": "groups"}, "claim", "required"),
        ({"claim": "x"}, "source", "required"),
        ({"claim": "x", "source": "attributes.unknown"}, "source", "unknown_source"),
        ({"claim": "x", "source": "sub"}, "source", "unknown_source"),
        ({"claim": "email", "source": "attributes.department"}, "source", "not_allowed"),
        ({"claim": "email_verified", "source": "email"}, "source", "not_allowed"),
        ({"claim": "roles", "source": "attributes.department"}, "source", "not_allowed"),
        ({"claim": "x", "source": "groups", "targets": []}, "targets", "too_few"),
        ({"claim": "x", "source": "groups", "targets": ["cookie"]}, "targets[0]", "not_allowed"),
        ({"claim": "x", "source": "groups", "scope": "openid"}, "scope", "unknown_field"),
        ({"claim": "badge", "source": "groups"}, "claim", "duplicate"),
        ({"claim": "badge.groups", "source": "groups"}, "claim", "duplicate"),
        ({"claim": "cnf.jkt", "source": "groups"}, "claim", "reserved"),
        ({"claim": "address.country", "source": "groups"}, "claim", "reserved"),
        ({"claim": "roles.all", "source": "groups"}, "claim", "reserved"),
        ({"claim": "a..b", "source": "groups"}, "claim", "invalid_claim"),
        ({"claim": "a.", "source": "groups"}, "claim", "invalid_claim"),
    ],
)
def test_invalid_mapping_is_rejected_and_names_the_field(
    app: Flask, make: Factory, mapping: dict[str, Any], field: str, code: str
) -> None:
    """OI-2."""
    acme = make.organization(settings={"user_profile": {"attributes": ATTRIBUTES}})
    first = {"claim": "badge", "source": "attributes.badge"}
    with app.app_context(), pytest.raises(InvalidInput) as refused:
        register_client(
            make.actor(acme),
            {"name": "App", "redirect_uris": [REDIRECT_URI], "claim_mappings": [first, mapping]},
        )
    errors = [(error.field, error.code) for error in refused.value.errors]
    assert errors == [(f"claim_mappings[1].{field}", code)]


def test_claims_that_are_too_large_for_a_token_are_left_out(
    app_flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_claims, "MAX_TOKEN_BYTES", 35)
    claims = received(app_flow, "openid groups roles")
    for target in TARGETS:
        is_token = target in ("id_token", "access_token")
        assert ("roles" in claims[target], "groups" in claims[target]) == (not is_token, True), target


def test_scopes_are_offered_and_not_requested_by_default(flow: Flow) -> None:
    document = flow.http.get(f"{flow.issuer}/.well-known/openid-configuration").get_json()
    assert {"groups", "roles"} <= set(document["scopes_supported"])
    assert {"groups", "roles"} <= set(document["claims_supported"])
    assert not {"groups", "roles"} & set(
        flow.make.client(flow.organization, name="New").registered.client.scopes
    )


def test_self_registered_client_gets_them_only_if_it_asks(flow: Flow) -> None:
    with flow.app.app_context():
        settings = {"oauth": {"dynamic_registration": {"mode": "open"}}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, settings)
    sent = {"redirect_uris": ["https://app.example/cb"]}
    path = f"{flow.issuer}/oauth/register"
    assert not {"groups", "roles"} & set(flow.http.post(path, json=sent).get_json()["scope"].split())
    asked = flow.http.post(path, json={**sent, "scope": "openid groups"})
    assert asked.get_json()["scope"] == "openid groups"
