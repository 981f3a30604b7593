"""Custom attributes in the portal: their definitions, and the values of a user."""

from __future__ import annotations

from typing import Any

NEW = {"name": "Department", "key": "department", "type": "string", "editable_by": "user", "scope": "profile"}


def test_attribute_is_defined_filled_changed_and_removed(ada: Any, make: Any, acme: Any) -> None:
    bob = make.user(acme, email="bob@acme.example", name="Bob")
    ada.get("/settings/attributes")
    assert "No attributes yet" in ada.text
    path = "/settings/attributes/new"
    ada.get(path)
    wrong = ada.send(path, version=ada.hidden("version"), **{**NEW, "key": "Big", "choices": "Fruit\nFruit"})
    assert wrong.status_code == 400 and "lowercase letters" in ada.text and "Duplicate entry" in ada.text
    ada.send(path, version=ada.hidden("version"), **NEW, choices="Fruit\nTools")
    ada.follow()
    assert "Department" in ada.text and "The user and administrators" in ada.text
    ada.get(f"/users/{bob.public_id}")
    assert "No values yet" in ada.text
    values = f"/users/{bob.public_id}/attributes"
    ada.get(values)
    version = ada.hidden("version")
    assert ada.send(values, version=version, attributes__department="Sales").status_code == 400
    assert "This must be one of: Fruit, Tools" in ada.text
    ada.send(values, version=version, attributes__department="Fruit")
    ada.follow()
    assert "Saved" in ada.text and "Department Fruit" in ada.text
    assert ada.send(values, version=version, attributes__department="Tools").status_code == 412
    page = "/settings/attributes/department"
    ada.get(page)
    version = ada.hidden("version")
    ada.send(page, version=version, **{**NEW, "name": "Team"})
    assert "Team" in ada.follow().text
    assert ada.send(page, version=version, remove="1").status_code == 412
    ada.get(page)
    ada.send(page, version=ada.hidden("version"), remove="1")
    ada.follow()
    assert "Attribute removed" in ada.text
    assert ada.get(page).status_code == 404


def test_each_type_has_a_field(ada: Any, make: Any, acme: Any) -> None:
    from app.operations.organizations.settings import update_settings

    kinds = ("string", "integer", "boolean", "date", "list")
    attributes = [{"key": kind, "name": kind.capitalize(), "type": kind} for kind in kinds]
    attributes.append({"key": "tools", "name": "Tools", "type": "list", "choices": ["saw", "axe"]})
    with ada.http.application.app_context():
        update_settings(make.actor(acme), "acme", {"user_profile": {"attributes": attributes}})
    path = f"/users/{ada.user.public_id}/attributes"
    ada.get(path)
    sent = {
        "string": "a",
        "integer": "-9007199254740991",
        "boolean": "1",
        "date": "2024-01-31",
        "list": "x\ny",
        "tools": "axe",
    }
    named = {f"attributes__{key}": value for key, value in sent.items()}
    ada.send(path, version=ada.hidden("version"), **{**named, "attributes__integer": "9007199254740992"})
    assert "This must be from -9007199254740991 to 9007199254740991." in ada.text
    ada.send(path, version=ada.hidden("version"), **named)
    ada.follow()
    for shown in (
        "String a",
        "Integer -9007199254740991",
        "Boolean Yes",
        "Date 2024-01-31",
        "List x, y",
        "Tools axe",
    ):
        assert shown in ada.text, shown
