"""Users: uniqueness of emails, validation, disabling and enabling."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import func, select, update

from app.extensions import db
from app.models.user import User
from app.operations.directory.users import create_user, find_user_by_email, get_user
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store.transactions import transaction
from app.operations.users import users
from app.operations.users.deletion import delete_user
from app.operations.users.password_resets import issue_reset_link
from app.operations.users.role_assignments import LastAdministrator, assign_role
from app.operations.users.user_changes import update_user
from app.operations.users.users import disable_user, enable_user, list_users
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import new_id
from app.rules.tokens.claims import claims_for
from tests.factories import PASSWORD
from tests.support.cases import each

pytestmark = pytest.mark.usefixtures("context")


def test_email_is_unique_within_an_organization(make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    first = make.user(acme, email="Ada@Example.com")
    with pytest.raises(Conflict):
        create_user(acme.id, email="ada@EXAMPLE.com")
    other = make.user(globex, email="ada@example.com")
    assert find_user_by_email(acme.id, "ADA@example.com").id == first.id
    assert find_user_by_email(globex.id, "ada@example.com").id == other.id
    assert get_user(acme.id, first.id).email == "Ada@Example.com"
    with pytest.raises(NotFound):
        get_user(globex.id, first.id)


@pytest.mark.both
@pytest.mark.parametrize(
    ("email", "other"), [("ádmin@x.example", "admin@x.example"), ("straße@x.example", "strasse@x.example")]
)
def test_accents_distinguish_users_on_every_engine(make: Any, email: str, other: str) -> None:
    """TK-4: the database's default collation would treat them as equal."""
    acme = make.organization()
    assert make.user(acme, email=email).id != make.user(acme, email=other).id


@pytest.mark.both
@each(
    "query",
    ["ångström", "Cleo 50% ÅNG", "O_1@MÜLLER.ex", "@xn--mller", "%", "_", "*", "[?]", "İPEK", "ΚΟΣΜΑΣ"],
)
def test_search_ignores_case_of_all_letters_and_finds_email_as_typed(make: Any, query: str) -> None:
    acme = make.organization()
    made = make.user(acme, email="Cleo_1@Müller.example", name="Cleo 50% Ångström [?] * İpek ΚΟΣΜΑΣ")
    make.user(acme, email="ada@x.example")
    found = list_users(make.actor(acme), query=query).items
    assert [record.user.id for record in found] == [made.id]


def test_account_keeps_an_email_that_could_not_be_set_now(make: Any) -> None:
    """A Cyrillic ``а`` beside Latin letters was allowed before."""
    acme = make.organization()
    ada, email = make.user(acme), "\u0430da@acme.example"
    transaction(lambda: db.session.execute(update(User).values(email=email, email_canonical=email)))()
    assert isinstance(sign_in(acme.id, email.upper(), PASSWORD, ip_address=None), SignedIn)
    assert [record.user.id for record in list_users(make.actor(acme), query=email).items] == [ada.id]
    actor = make.actor(acme)
    assert update_user(actor, ada.public_id, {"email": email, "name": "Ada"}).changed == ["name"]
    for refused in (
        lambda: update_user(actor, ada.public_id, {"email": f"{email}.org"}),
        lambda: create_user(acme.id, email="b\u043eb@acme.example"),
    ):
        with pytest.raises(InvalidInput, match="valid email"):
            refused()


def test_search_for_the_email_of_a_user_finds_no_longer_ones(make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    made = [make.user(acme, email=email).id for email in ("ada@x.example", "grada@x.example.org")]
    make.user(globex, email="rada@x.example")

    def found(query: str) -> list[Any]:
        return [record.user.id for record in list_users(make.actor(acme), query=query).items]

    assert found(" Ada@X.example") == made[:1]
    assert (found("da@x.example"), found("rada@x.example")) == (made, made[1:])


@pytest.mark.parametrize(
    "fields", [{"email": "nobody"}, {"email": "a@b.example", "name": "A\u202eB"}, {"email": ""}]
)
def test_invalid_email_or_name_is_rejected(make: Any, fields: dict[str, str]) -> None:
    acme = make.organization()
    with pytest.raises(InvalidInput):
        create_user(acme.id, **fields)
    assert db.session.scalar(select(func.count()).select_from(User)) == 0


def test_user_claims_are_typed_and_complete(make: Any) -> None:
    acme = make.organization()
    view = get_user(acme.id, make.user(acme, email="ada@acme.example").id)
    claims = claims_for(view.claims, {"openid", "profile", "email"})
    assert claims["sub"] == view.public_id
    assert claims["email_verified"] is True
    assert claims["updated_at"] == int(view.updated_at.timestamp())
    assert None not in claims.values()


def test_the_last_administrator_cannot_be_disabled(make: Any) -> None:
    acme = make.organization()
    ada, member = make.user(acme, role="admin"), make.user(acme)
    actor = make.actor(acme)
    with pytest.raises(LastAdministrator):
        disable_user(actor, ada.id)
    assert get_user(acme.id, ada.id).is_active
    assert disable_user(actor, member.id).status == "disabled"
    make.user(acme, role="admin")
    assert disable_user(actor, ada.id).status == "disabled"


def test_disabling_requires_permission_and_all_of_the_users_permissions(make: Any) -> None:
    acme = make.organization()
    ada = make.user(acme, role="admin")
    make.user(acme, role="admin")
    for actor in (make.actor(acme, "users:read"), make.actor(acme, "users:write")):
        with pytest.raises(Forbidden):
            disable_user(actor, ada.id)
    with pytest.raises(NotFound):
        disable_user(make.actor(acme), new_id())


def test_root_user_with_role_elsewhere_needs_a_privileged_actor(make: Any) -> None:
    """TN-11: otherwise someone who may reset root's users could gain the roles that these have elsewhere."""
    root, acme = make.root(), make.organization()
    grace, helper = make.user(root), make.user(root)
    assign_role(make.system(acme), acme.id, root.id, grace.id, "admin")
    narrow = make.actor(root, "users:read", "users:write", user=helper)
    machine = replace(narrow, kind="client", user_id=None, permissions=narrow.permissions)
    for actor in (narrow, machine):
        for act in (issue_reset_link, disable_user):
            with pytest.raises(Forbidden):
                act(actor, grace.id)
        with pytest.raises(Forbidden):
            update_user(actor, grace.public_id, {"email": "mallory@example.com"})
    assert issue_reset_link(narrow, make.user(root).id).link
    # An actor with the same role there and all permissions in root may do it.
    assign_role(make.system(acme), acme.id, root.id, helper.id, "admin")
    assert issue_reset_link(make.actor(root, user=helper), grace.id).link
    assert issue_reset_link(make.system(root), grace.id).link


@pytest.mark.mariadb
@pytest.mark.race
def test_concurrent_creation_with_one_email_makes_one_user(make: Any, app: Flask) -> None:
    acme = make.organization()
    ready, outcomes = threading.Barrier(20), []

    def create(number: int) -> None:
        with app.app_context():
            ready.wait()
            try:
                create_user(acme.id, email=("ada@x.example", "ADA@X.example")[number % 2])
                outcomes.append("made")
            except Conflict:
                outcomes.append("refused")

    threads = [threading.Thread(target=create, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["refused"] * 19


def test_deleted_user_cannot_be_enabled(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """OI-1: a request that read the user before the deletion writes after it."""
    acme = make.organization()
    user = make.user(acme)
    read_before = get_user(acme.id, user.id)
    delete_user(make.actor(acme), user.public_id)
    monkeypatch.setattr(users, "require_manageable_user", lambda *_: read_before)
    with pytest.raises(NotFound):
        enable_user(make.actor(acme), user.id)
    assert db.session.get_one(User, (acme.id, user.id)).status == "deleted"
