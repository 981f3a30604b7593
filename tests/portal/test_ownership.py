"""Owners in the portal: on the pages of clients and APIs, and everything of a user at once."""

from __future__ import annotations

from typing import Any

from app.operations.clients.resources import define_resource
from app.operations.users.deletion import delete_user


def test_developer_gives_a_client_and_an_api_away(portal_user: Any, make: Any, acme: Any) -> None:
    grace = portal_user(acme, "developer", email="grace@acme.example")
    linus = portal_user(acme, "developer", email="linus@acme.example")
    actor = make.actor(acme, user=grace.user)
    client = make.client(acme, by=actor, name="Orchard").client_id
    with grace.http.application.app_context():
        api = define_resource(actor, {"identifier": "urn:orders", "name": "Orders"}).public_id
    for page, listing, name in (
        (f"/clients/{client}", "/clients", "Orchard"),
        (f"/apis/{api}", "/apis", "Orders"),
    ):
        grace.get(page)
        assert "Owner grace@acme.example" in grace.text
        assert linus.get(page).status_code == linus.get(f"{page}/owner").status_code == 404
        grace.get(f"{page}/owner")
        assert (
            f"Change the owner of {name}?" in grace.text and "grace@acme.example loses access" in grace.text
        )
        assert grace.send(f"{page}/owner", email="nobody@acme.example").status_code == 400
        assert (
            ":write:own can be the owner" in grace.text and 'value="nobody@acme.example"' in grace.page.text
        )
        grace.submit(f"{page}/owner", email="linus@acme.example")
        assert "Owner changed" in grace.text and grace.page.request.path == f"/portal/acme{listing}"
        assert grace.get(page).status_code == 404
        linus.get(page)
        assert "Owner linus@acme.example" in linus.text and "/users/" not in linus.page.text


def test_administrator_transfers_what_a_user_owns_before_deleting_them(
    ada: Any, portal_user: Any, make: Any, acme: Any
) -> None:
    grace = make.user(acme, email="grace@acme.example", role="developer")
    linus = make.user(acme, email="linus@acme.example", role="developer")
    for name in ("Orchard", "Blossom"):
        make.client(acme, by=make.actor(acme, user=grace), name=name)
    make.client(acme, name="Of somebody else")
    ada.get(f"/users/{linus.public_id}")
    assert "Owns" not in ada.text
    ada.get(f"/users/{grace.public_id}")
    assert "Owns 2 clients · Transfer" in ada.text
    ada.get(f"/clients?owner_id={grace.public_id}")
    assert "Only those of grace@acme.example." in ada.text and "Orchard" in ada.text
    assert "Of somebody else" not in ada.text
    ada.get(f"/users/{grace.public_id}/delete")
    assert "What the user owns stays: 2 clients. Transfer it first" in ada.text
    page = f"/users/{grace.public_id}/transfer"
    ada.get(page)
    assert "The new owner gets: 2 clients." in ada.text
    assert ada.send(page, email=grace.public_id).status_code == 400
    assert "is the owner already" in ada.text
    ada.submit(page, email=linus.public_id)
    assert "Transferred" in ada.text and "Owns" not in ada.text
    ada.get(f"/users/{linus.public_id}")
    assert "Owns 2 clients" in ada.text
    ada.get(f"/users/{grace.public_id}/delete")
    assert "stays" not in ada.text
    ada.get("/clients?owner_id=nonsense")
    assert "Of somebody else" in ada.text
    ada.submit(page, email=linus.email)
    assert "No changes to save." in ada.text
    ada.get(page)
    ada.follow()
    assert ada.page.request.path == f"/portal/acme/users/{grace.public_id}"


def test_what_a_deleted_user_owned_is_transferred(ada: Any, make: Any, acme: Any) -> None:
    grace = make.user(acme, email="grace@acme.example", role="developer")
    linus = make.user(acme, email="linus@acme.example", role="developer")
    client = make.client(acme, by=make.actor(acme, user=grace), name="Orchard").client_id
    with make.app.app_context():
        delete_user(make.actor(acme), grace.public_id)
    ada.get(f"/clients/{client}")
    assert f"Owner A deleted user ({grace.public_id})" in ada.text
    ada.get(f"/clients/{client}/details")
    assert "Transfer everything of this owner" in ada.text
    ada.get(f"/users/{grace.public_id}/transfer")
    assert "The owner was deleted." in ada.text and "may still know secrets" in ada.text
    ada.submit(f"/users/{grace.public_id}/transfer", email=linus.email)
    assert "Transferred" in ada.text and ada.page.request.path == "/portal/acme/clients"
    ada.get(f"/clients/{client}/owner")
    version = ada.hidden("version")
    ada.submit(f"/clients/{client}/owner", email=linus.email, version=version)
    assert "No changes to save." in ada.text
    ada.submit(f"/clients/{client}/owner", email=ada.user.email, version=version)
    assert "Owner changed" in ada.text
    assert ada.send(f"/clients/{client}/owner", email=linus.email, version=version).status_code == 412
    assert "Someone changed this client" in ada.text


def test_filter_by_owner_names_nobody_whom_the_developer_may_not_know(
    portal_user: Any, make: Any, acme: Any
) -> None:
    grace = portal_user(acme, "developer", email="grace@acme.example")
    boss = make.user(acme, email="boss@acme.example", role="admin")
    for listing in ("/clients", "/apis"):
        grace.get(f"{listing}?owner_id={boss.public_id}")
        assert "Only those of one owner." in grace.text and "boss@" not in grace.text
        grace.get(f"{listing}?owner_id={grace.user.public_id}")
        assert "Only those of grace@acme.example." in grace.text
