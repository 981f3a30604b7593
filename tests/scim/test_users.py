"""Users: what is stored of a resource, changes as Okta and Entra send them, and what a provider may not do."""

from __future__ import annotations

from typing import Any

import pytest

from app.models.audit import AuditEvent
from app.models.session import Session
from app.models.user import User
from app.operations.directory.users import create_user
from app.operations.organizations.settings import update_settings
from app.operations.users.groups import add_member
from app.operations.users.provisioning import UserSearch, list_provisioned_users
from app.operations.users.user_changes import update_user
from app.operations.users.users import Provisioning, get_user_record, list_users
from app.rules.identifiers import public_id
from tests.factories import Factory
from tests.scim.conftest import PATCH, Directory, new_directory
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.query_plans import plan_of

GRACE = {
    "externalId": "00u1",
    "name": {"givenName": "Grace", "middleName": "Brewster", "familyName": "Hopper"},
    "displayName": "Admiral Hopper",
    "nickName": "Amazing Grace",
    "profileUrl": "https://acme.example/grace",
    "locale": "en-US",
    "timezone": "America/New_York",
    "active": True,
    "emails": [{"value": "grace@acme.example", "type": "work", "primary": True}],
    "phoneNumbers": [{"value": "tel:+1-425-555-0123", "type": "work"}],
    "addresses": [{"type": "work", "streetAddress": "1 Main St", "locality": "Arlington", "country": "US"}],
}
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


def user_of(directory: Directory, resource: Any) -> Any:
    """Return the stored user of a resource."""
    (found,) = [row for row in directory.rows(User) if public_id("usr", row.id) == resource["id"]]
    return found


def test_attributes_are_stored_and_returned(directory: Directory) -> None:
    created = directory.create(
        "grace@acme.example", **GRACE, **{ENTERPRISE: {"department": "Navy"}, "title": "x"}
    )
    user = user_of(directory, created)
    assert (user.email, user.email_verified, user.password_hash) == ("grace@acme.example", False, None)
    assert user.name == "Admiral Hopper" and user.provisioned_by == directory.record.id
    assert user.profile == {
        "given_name": "Grace",
        "middle_name": "Brewster",
        "family_name": "Hopper",
        "nickname": "Amazing Grace",
        "profile": "https://acme.example/grace",
        "zoneinfo": "America/New_York",
        "locale": "en-US",
        "phone_number": "+14255550123",
        "address": {"street_address": "1 Main St", "locality": "Arlington", "country": "US"},
    }
    assert created["meta"]["location"].endswith(f"/scim/v2/Users/{created['id']}")
    shown = directory.send("GET", f"/Users/{created['id']}")
    assert shown == created
    expected = GRACE | {
        "name": GRACE["name"] | {"formatted": "Admiral Hopper"},  # type: ignore[operator]
        "phoneNumbers": [{"value": "+14255550123", "type": "work", "primary": True}],
        "addresses": [GRACE["addresses"][0] | {"primary": True}],  # type: ignore[index]
    }
    assert {name: shown[name] for name in expected} == expected
    assert ENTERPRISE not in shown["schemas"] and "title" not in shown
    with directory.app.app_context():
        record = get_user_record(directory.admin, created["id"])
        assert record.provisioning == Provisioning(directory.record.public_id, "00u1", None)
        assert record in list_users(directory.admin).items
    few = directory.send("GET", f"/Users/{created['id']}?attributes=userName,name.givenName")
    assert few.keys() == {"schemas", "id", "userName", "name"} and few["name"] == {"givenName": "Grace"}


def test_locale_with_underscore_and_long_names_are_stored(directory: Directory) -> None:
    names = {"givenName": "Grace" * 12, "familyName": "Hopper" * 10}
    created = directory.create("grace@acme.example", locale="en_US", name=names)
    assert created["locale"] == "en-US"
    assert created["displayName"] == f"{names['givenName']} {names['familyName']}"[:100]


def test_custom_attributes_take_what_they_are_named_after(directory: Directory) -> None:
    """Only texts, and a required one may come from elsewhere."""
    directory.define_attributes(
        {"key": "department", "choices": ["Navy", "Army"]},
        {"key": "title", "type": "list"},
        {"key": "employee_number"},
        {"key": "badge", "required": True},
    )
    sent = {
        ENTERPRISE: {"department": "Navy", "costCenter": "1", "manager": {"value": "x"}},
        "title": "Admiral",
    }
    refused = directory.create("grace@acme.example", status=400, **sent)
    assert refused["detail"] == "badge: badge is required."
    user = directory.create("grace@acme.example")
    path = f"/Users/{user['id']}"
    with directory.app.app_context():
        update_user(directory.admin, user["id"], {"attributes": {"badge": "7"}})
    changed = directory.send("PUT", path, user | sent)
    assert changed[ENTERPRISE] == {"department": "Navy"} and "title" not in changed
    assert user_of(directory, user).attributes == {"badge": "7", "department": "Navy"}
    number = {"op": "Add", "path": f"{ENTERPRISE}:employeeNumber", "value": "42"}
    changed = directory.patch(path, number, {"op": "Remove", "path": f"{ENTERPRISE}:department"})
    assert changed[ENTERPRISE] == {"employeeNumber": "42"}
    wrong = {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Air"}
    assert directory.patch(path, wrong, status=400)["detail"].startswith("department: ")
    assert user_of(directory, user).attributes == {"badge": "7", "employee_number": "42"}


def test_every_attribute_of_the_enterprise_extension_is_stored(directory: Directory) -> None:
    names = {
        "employeeNumber": "employee_number",
        "costCenter": "cost_center",
        "organization": "organization",
        "division": "division",
        "department": "department",
    }
    directory.define_attributes(*({"key": key} for key in ("title", "user_type", *names.values())))
    sent = {ENTERPRISE: {name: name.upper() for name in names}, "title": "Admiral", "userType": "Officer"}
    created = directory.create("grace@acme.example", **sent)
    assert {name: created[name] for name in sent} == sent and ENTERPRISE in created["schemas"]
    stored = {key: name.upper() for name, key in names.items()} | {"title": "Admiral", "user_type": "Officer"}
    assert user_of(directory, created).attributes == stored


def test_provider_that_finds_a_user_manages_them_from_then_on(directory: Directory, make: Factory) -> None:
    """What it does not send stays: the claims that SCIM does not have, and the password."""
    user = make.user(directory.organization, email="Grace@acme.example", role="member")
    path = '/Users?filter=userName eq "grace@ACME.example"'
    (found,) = directory.send("GET", path)["Resources"]
    assert (
        found["id"] == user.public_id
        and "externalId" not in found
        and found["userName"] == "Grace@acme.example"
    )
    assert directory.create("grace@acme.example", status=409)["scimType"] == "uniqueness"
    directory.patch(f"/Users/{user.public_id}", {"op": "add", "path": "externalId", "value": "00u1"})
    stored = user_of(directory, found)
    assert (stored.provisioned_by, stored.external_id) == (directory.record.id, "00u1")
    assert stored.password_hash and stored.email == "Grace@acme.example"
    (found,) = directory.send("GET", '/Users?filter=externalId eq "00u1"')["Resources"]
    assert found["id"] == user.public_id


def test_user_who_signed_up_and_has_not_verified_the_email_is_not_found(directory: Directory) -> None:
    """IP-13: whoever signed up with the email of another must not get what the directory means for its owner."""
    with directory.app.app_context():
        row_id = create_user(directory.organization.id, email="grace@acme.example", made_unproven=True)
    user_id = public_id("usr", row_id)
    path = f"/Users/{user_id}"
    assert not directory.send("GET", '/Users?filter=userName eq "grace@acme.example"')["totalResults"]
    directory.patch(path, {"op": "add", "path": "externalId", "value": "00u1"}, status=404)
    directory.send("DELETE", path, status=404)
    assert user_id in directory.group("Crew", user_id, status=400)["detail"]
    # A directory can send back a group as it was returned, also one to which an administrator added the user.
    group = directory.group("Crew", directory.create("a@acme.example")["id"])
    with directory.app.app_context():
        add_member(directory.admin, directory.organization.slug, group["id"], {"user_id": user_id})
    shown = directory.send("GET", f"/Groups/{group['id']}")
    assert directory.send("PUT", f"/Groups/{group['id']}", shown)["members"] == group["members"]
    assert directory.create("grace@acme.example", status=409)["scimType"] == "uniqueness"


@each(
    ("operations", "expected"),
    [
        # Microsoft Entra.
        ([{"op": "Replace", "path": "active", "value": "False"}], {"active": False}),
        (
            [
                {"op": "Replace", "path": "displayName", "value": "G. Hopper"},
                {"op": "Add", "path": "name.middleName", "value": "B."},
                {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Navy"},
                {"op": "Replace", "path": 'phoneNumbers[type eq "work"].value', "value": "+41 44 668 18 00"},
            ],
            {
                "displayName": "G. Hopper",
                "phoneNumbers": [{"value": "+41446681800", "type": "work", "primary": True}],
            },
        ),
        (
            [{"op": "Replace", "path": 'emails[type eq "work"].value', "value": "hopper@acme.example"}],
            {"emails": [{"value": "hopper@acme.example", "type": "work", "primary": True}]},
        ),
        # Okta.
        ([{"op": "replace", "value": {"active": False}}], {"active": False}),
        ([{"op": "replace", "value": {"name.familyName": "Murray"}}], {"displayName": "Admiral Hopper"}),
        # Whoever is named by the email keeps being so.
        (
            [{"op": "replace", "path": "userName", "value": "hopper@acme.example"}],
            {
                "userName": "hopper@acme.example",
                "emails": [{"value": "hopper@acme.example", "type": "work", "primary": True}],
            },
        ),
        (
            [{"op": "replace", "path": "userName", "value": "GHopper"}],
            {
                "userName": "ghopper",
                "emails": [{"value": "grace@acme.example", "type": "work", "primary": True}],
            },
        ),
        ([{"op": "replace", "path": "name.formatted", "value": "Grace H."}], {"displayName": "Grace H."}),
        ([{"op": "remove", "path": "displayName"}], {"displayName": "Admiral Hopper"}),
        ([{"op": "remove", "path": "nickName"}], {"nickName": None}),
        (
            [{"op": "remove", "path": "addresses"}, {"op": "remove", "path": "phoneNumbers"}],
            {"addresses": None},
        ),
        ([{"op": "remove", "path": "externalId"}], {"externalId": None}),
        ([{"op": "replace", "path": "externalId", "value": ""}], {"externalId": None}),
    ],
)
def test_patch_changes_what_it_names(directory: Directory, operations: Any, expected: Any) -> None:
    created = directory.create("grace@acme.example", **GRACE)
    changed = directory.patch(f"/Users/{created['id']}", *operations)
    assert {name: changed.get(name) for name in expected} == expected
    assert directory.send("GET", f"/Users/{created['id']}") == changed
    named = {name.split(".")[0] for name in expected} | {"meta", "name", "phoneNumbers"}
    unnamed = {name: value for name, value in created.items() if name not in named}
    assert {name: changed.get(name) for name in unnamed} == unnamed
    directory.send("DELETE", f"/Users/{created['id']}", status=204)


@each(
    ("operations", "scim_type"),
    [
        (5, "invalidValue"),
        ([{"op": "replace", "path": "active", "value": "maybe"}], "invalidValue"),
        ([{"op": "add", "path": "name.familyName", "value": ["Hopper"]}], "invalidValue"),
        ([{"op": "add", "path": "externalId", "value": 5}], "invalidValue"),
        ([{"op": "replace", "path": "emails", "value": [5]}], "invalidValue"),
        # Each operation on a list costs as much as the list is long.
        ([{"op": "add", "path": "nickName", "value": "Amazing Grace"}] * 101, "invalidValue"),
        ([{"op": "add", "value": {"emails": [{"value": "grace@acme.example"}] * 100}}], "invalidValue"),
        ([{"op": "remove", "path": f"emails[{' or '.join(['value pr'] * 100)}]"}], "invalidPath"),
    ],
)
def test_unreasonable_patch_is_refused(directory: Directory, operations: Any, scim_type: str) -> None:
    path = f"/Users/{directory.admin_id}"
    body = {"schemas": [PATCH], "Operations": operations}
    refused = directory.send("PATCH", path, body, 400)
    assert refused["scimType"] == scim_type, refused
    assert not [text for text in ("pydantic", "_", "instance of") if text in refused["detail"]], refused


def test_replacement_keeps_what_would_be_dangerous_to_lose(directory: Directory) -> None:
    created = directory.create("ghopper", **GRACE)
    directory.patch(f"/Users/{created['id']}", {"op": "replace", "path": "active", "value": False})
    body = {
        "schemas": created["schemas"],
        "userName": "ghopper",
        "name": {"givenName": "G", "familyName": "H"},
    }
    replaced = directory.send("PUT", f"/Users/{created['id']}", body)
    assert replaced["active"] is False and replaced["externalId"] == "00u1"
    assert replaced["emails"][0]["value"] == "grace@acme.example" and replaced["displayName"] == "G H"
    assert "nickName" not in replaced and "locale" not in replaced
    for operation in ({"op": "remove", "path": "active"}, {"op": "replace", "value": {"active": None}}):
        assert directory.patch(f"/Users/{created['id']}", operation)["active"] is False
    body["active"] = True
    assert directory.send("PUT", f"/Users/{created['id']}", body)["active"] is True


def test_deactivation_and_another_email_end_sessions(directory: Directory, make: Factory) -> None:
    for operation in (
        {"op": "replace", "path": "active", "value": False},
        {"op": "replace", "path": "userName", "value": "other@acme.example"},
    ):
        user = make.user(directory.organization)
        make.sign_in(user)
        directory.patch(f"/Users/{user.public_id}", operation)
        assert not [row for row in directory.rows(Session) if row.user_id == user.id]


def test_provider_finds_a_user_whose_email_was_changed_here(directory: Directory) -> None:
    """By the userName that it knows, or it would create another user."""
    created = directory.create("Grace@acme.example")
    with directory.app.app_context():
        update_user(directory.admin, created["id"], {"email": "hopper@acme.example"})
        update_user(directory.admin, created["id"], {"email": "admiral@acme.example"})
    (found,) = directory.send("GET", '/Users?filter=userName eq "Grace@acme.example"')["Resources"]
    assert (found["id"], found["userName"]) == (created["id"], "grace@acme.example")
    assert found["emails"][0]["value"] == "admiral@acme.example"
    directory.create("grace@acme.example", status=409)
    # The provider changes the email: that is the name again.
    changed = directory.send("PUT", f"/Users/{created['id']}", {"userName": "grace@acme.example"})
    assert changed["emails"][0]["value"] == "admiral@acme.example"
    emails = [{"value": "navy@acme.example"}]
    body = {"userName": "navy@acme.example", "emails": emails}
    directory.send("PUT", f"/Users/{created['id']}", body)
    assert user_of(directory, created).user_name is None


@each(
    ("query", "found"),
    [
        ("", "abc"),
        ('filter=userName eq "A@acme.example"', "a"),
        ('filter=userName eq "bravo"', "b"),
        ('filter=urn:ietf:params:scim:schemas:core:2.0:User:userName eq "bravo"', "b"),
        ('filter=urn:ietf:params:scim:schemas:core:2.0:Group:userName eq "bravo"', None),
        ('filter=userName eq "b@acme.example"', ""),
        ('filter=userName eq "nobody"', ""),
        ('filter=emails[type eq "work"].value eq "b@acme.example"', "b"),
        ('filter=emails[type eq "work" and value eq "b@acme.example"]', "b"),
        ('filter=emails.value eq "b@acme.example"', "b"),
        ('filter=emails eq "b@acme.example" and active eq true', "b"),
        ('filter=externalId eq "B"', "b"),
        ('filter=externalId eq "b"', ""),
        ("filter=active eq false", "c"),
        ('filter=active eq "False"', "c"),
        ('filter=active eq "no"', None),
        ("filter=userName eq true", None),
        ('filter=id eq "nothing"', ""),
        ("startIndex=2&count=1", "a"),
        ("startIndex=0&count=-3", ""),
        ("startIndex=10", ""),
        ('filter=userName sw "a"', None),
        ('filter=userName eq "a" or userName eq "b"', None),
        ('filter=not (userName eq "a")', None),
        ('filter=userName eq "a" and userName eq "b"', None),
        ("filter=userName pr", None),
        ("filter=userName eq", None),
        ('filter=nothing eq "a"', None),
        ("filter=userName eq 5", None),
        # Nothing is not anything: a client without a value must not find everyone.
        ("filter=userName eq null", None),
        ('filter=userName eq "\\ud800"', None),
        (f"filter={' and '.join(['active eq true'] * 70)}", None),
    ],
)
def test_lists_are_filtered_and_paged(directory: Directory, query: str, found: str | None) -> None:
    if not directory.send("GET", '/Users?count=0&filter=externalId eq "B"')["totalResults"]:
        directory.create("a@acme.example", externalId="A")
        directory.create("Bravo", externalId="B", emails=[{"value": "b@acme.example"}])
        directory.create("c@acme.example", active=False)
    # The administrator of the organization is a user, too.
    admin = directory.send("GET", f'/Users?filter=id eq "{directory.admin_id}"')["Resources"]
    listed = directory.send("GET", f"/Users?{query}", status=400 if found is None else 200)
    if found is None:
        assert listed["scimType"] in {"invalidFilter", "invalidValue"}, listed
        return
    emails = [each["emails"][0]["value"] for each in listed.get("Resources", []) if each not in admin]
    assert [email[0] for email in emails] == list(found)
    assert listed["itemsPerPage"] == len(listed.get("Resources", []))


def test_user_name_is_found_by_an_index_for_names_and_one_for_emails(
    directory: Directory, database: Database
) -> None:
    """By each alone: SQLite and MySQL read all users of the organization if either may match."""
    search = UserSearch(user_name="grace@acme.example")
    actor = directory.actor()
    with directory.app.app_context():
        _, plan = plan_of(lambda: list_provisioned_users(actor, search), "users.external_id")
    # MySQL reads so few rows by their key.
    assert "UNION" in plan or database.kind != database.engine, plan


@each(
    ("attributes", "status", "scim_type", "named"),
    [
        ({"userName": "grace"}, 400, "invalidValue", "emails.value"),
        ({"userName": "x@acme.example", "timezone": "Mars"}, 400, "invalidValue", "timezone"),
        (
            {"userName": "x@acme.example", "phoneNumbers": [{"value": "12"}]},
            400,
            "invalidValue",
            "phoneNumbers",
        ),
        (
            {"userName": "x@acme.example", "name": {"givenName": "x" * 300}},
            400,
            "invalidValue",
            "name.givenName",
        ),
        ({"userName": "x@acme.example", "externalId": "x" * 256}, 400, "invalidValue", "externalId"),
        ({"userName": "x" * 321, "emails": [{"value": "x@acme.example"}]}, 400, "invalidValue", "userName"),
        ({"userName": "x@acme.example", "externalId": "00u1"}, 409, "uniqueness", "externalId"),
        ({"userName": "GRACE@acme.example"}, 409, "uniqueness", "emails.value"),
        (
            {"userName": "GRACE@acme.example", "emails": [{"value": "x@acme.example"}]},
            409,
            "uniqueness",
            "userName",
        ),
        ({"userName": "x@acme.example", "active": "maybe"}, 400, "invalidValue", "active"),
        ({"userName": 5, "nickName": 6}, 400, "invalidValue", "nickName"),
        ({"userName": ""}, 400, "invalidValue", ""),
        ({}, 400, "invalidValue", "userName"),
    ],
)
def test_bad_attributes_are_named_and_nothing_is_stored(
    directory: Directory, attributes: Any, status: int, scim_type: str, named: str
) -> None:
    if not directory.send("GET", '/Users?filter=externalId eq "00u1"')["totalResults"]:
        directory.create("grace@acme.example", externalId="00u1")
    before = directory.rows(User)
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], **attributes}
    refused = directory.send("POST", "/Users", body, status)
    assert refused["scimType"] == scim_type and named.lower() in refused["detail"].lower().replace("_", ""), (
        refused
    )
    assert [row.id for row in directory.rows(User)] == [row.id for row in before]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_users_of_others_are_left_alone(directory: Directory, make: Factory, method: str) -> None:
    """IP-13: users with permissions, users of another provider, and, to delete, users whom no provider manages."""
    roles = {"helpdesk": ["users:read", "users:write"], "clerk": ["invoices:approve"]}
    with directory.app.app_context():
        update_settings(
            make.system(directory.organization),
            directory.organization.slug,
            {"user_permissions": {"roles": {name: {"permissions": held} for name, held in roles.items()}}},
        )
    special = [make.user(directory.organization, role=role).public_id for role in ("admin", *roles)]
    other = new_directory(directory.app, make, directory.organization, slug="entra", name="Entra")
    theirs = other.create("theirs@acme.example", externalId="1")
    found = directory.send("GET", f"/Users/{theirs['id']}")
    assert "externalId" not in found
    at_home = make.user(directory.organization, role="member")
    ids = [*special, theirs["id"], *([at_home.public_id] if method == "DELETE" else [])]
    for user_id in ids:
        body: Any = None
        if method == "PUT":
            body = {"schemas": found["schemas"], "userName": "new@acme.example"}
        if method == "PATCH":
            body = {"Operations": [{"op": "replace", "path": "active", "value": False}]}
        refused = directory.send(method, f"/Users/{user_id}", body, 403)
        assert refused["detail"]
    stranger = make.user(make.organization(), role="member")
    directory.send("GET", f"/Users/{stranger.public_id}", status=404)
    assert {row.status for row in directory.rows(User)} == {"active"}


def test_change_needs_the_version_that_the_caller_names(directory: Directory) -> None:
    created = directory.create("grace@acme.example")
    path, tag = f"/Users/{created['id']}", created["meta"]["version"]
    body = {"schemas": created["schemas"], "userName": "grace@acme.example", "displayName": "Grace"}
    changed = directory.send("PUT", path, body, headers={"If-Match": tag})
    assert changed["meta"]["version"] != tag
    directory.send("PUT", path, body | {"displayName": "G"}, 412, headers={"If-Match": tag})
    directory.send("DELETE", path, status=412, headers={"If-Match": tag})
    assert directory.send("GET", path)["displayName"] == "Grace"


def test_unchanged_user_is_not_recorded(directory: Directory) -> None:
    """Directories repeat what they sent before: the audit log and the version stay as they are."""
    created = directory.create("grace@acme.example", **GRACE)
    events = len(directory.rows(AuditEvent))
    body = {name: value for name, value in created.items() if name not in {"id", "meta"}}
    assert directory.send("PUT", f"/Users/{created['id']}", body) == created
    assert len(directory.rows(AuditEvent)) == events
