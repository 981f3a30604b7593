"""Registration: where it is open, which emails are accepted, and the hourly limits."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.directory.users import find_user_by_email
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users import sign_up
from app.operations.users.app_roles import assign_app_role
from app.operations.users.groups import add_member, create_group
from app.operations.users.invitations import create_invitation
from app.operations.users.role_assignments import RoleAssignment
from app.operations.users.sign_up import register_user
from app.rules.errors import Conflict, Forbidden, InvalidInput, TooManyRequests
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.cases import each
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")


def open_organization(make: Any, **more: Any) -> Any:
    registration = {"mode": "open", "verify_email": False, **more}
    return make.organization(settings={"authentication": {"registration": registration}})


def register(organization: Any, **changes: Any) -> None:
    good = {"email": "new@example.com", "name": "New Person", "password": PASSWORD, "ip_address": "192.0.2.7"}
    register_user(organization, **({**good, "request_id": None} | changes))


def test_account_is_created_with_default_roles_and_unverified_email(make: Any, database: Database) -> None:
    """OI-5."""
    acme = open_organization(make)
    register(acme)
    user = find_user_by_email(acme.id, "new@example.com")
    assert user is not None and (user.name, user.email_verified) == ("New Person", False)
    assert isinstance(sign_in(acme.id, "new@example.com", PASSWORD), SignedIn)
    assert database.count(RoleAssignment.__tablename__) == 1
    assert audited(database, "user.registered") == 1


def test_existing_account_is_unchanged_and_not_revealed(make: Any, database: Database) -> None:
    """EN-1, OI-5: registering its email again does not take over an account."""
    acme = open_organization(make)
    ada = make.user(acme, email="ada@example.com")
    register(acme, email="Ada@Example.com", password="another password entirely", name="Eve")
    user = find_user_by_email(acme.id, ada.email)
    assert user is not None and user.id == ada.id and user.name == "Ada Lovelace"
    assert isinstance(sign_in(acme.id, ada.email, "another password entirely"), SignInRefused)
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert audited(database, "user.registered") == 0
    assert audited(database, "user.registration_refused") == 1


@each("kind", ["group", "app role"])
def test_unproven_email_gets_no_group_or_app_role_of_its_owner(make: Any, kind: str) -> None:
    """OI-5: whoever registers with another person's email is not meant by it."""
    acme = open_organization(make)
    register(acme, email="boss@example.com")
    actor, client = make.actor(acme), make.client(acme, app_roles=[{"key": "owner"}])
    group = create_group(actor, acme.slug, {"name": "Payroll"}).public_id

    def give(**user: str) -> Any:
        if kind == "group":
            return add_member(actor, acme.slug, group, user)
        return assign_app_role(actor, client.client_id, {"role": "owner", **user})

    with pytest.raises(Conflict) as refused:
        give(email="boss@example.com")
    assert (refused.value.code, refused.value.field) == ("email_unverified", "email")
    assert give(user_id=refused.value.description.rpartition(": ")[2].rstrip("."))


@pytest.mark.parametrize("mode", ["closed", "invite"])
def test_registration_is_rejected_where_not_open(make: Any, database: Database, mode: str) -> None:
    acme = make.organization(settings={"authentication": {"registration": {"mode": mode}}})
    with pytest.raises(Forbidden):
        register(acme)
    assert database.count("users") == 0


def test_closed_organization_cannot_invite(make: Any, database: Database) -> None:
    acme = make.organization(settings={"authentication": {"registration": {"mode": "closed"}}})
    with pytest.raises(Conflict) as refused:
        create_invitation(make.actor(acme), acme.slug, email="new@example.com")
    assert refused.value.code == "registration_closed"
    assert database.count("invitations") == 0


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("email", {"email": "nobody"}),
        ("email", {"email": "new@evil.example"}),
        ("email", {"email": "new@sub.example.com"}),
        ("name", {"name": ""}),
        ("name", {"name": "A\u202eB"}),
        ("password", {"password": "short"}),
        ("password", {"password": "new@example.com"}),
    ],
)
def test_invalid_field_is_rejected_by_name(
    make: Any, database: Database, field: str, changes: dict[str, str]
) -> None:
    acme = open_organization(make, allowed_email_domains=["Example.com", "münchen.example"])
    with pytest.raises(InvalidInput) as refused:
        register(acme, **changes)
    assert [error.field for error in refused.value.errors] == [field]
    assert (database.count("users"), database.count("attempts")) == (0, 0)
    register(acme, email="new@xn--mnchen-3ya.example")


def test_registrations_per_network_are_limited(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """EN-1: someone who tries emails is slowed down. Other networks are not affected."""
    hashed: list[str] = []
    monkeypatch.setattr(
        sign_up, "hash_new_password", lambda _, password, **__: hashed.append(password) or "x"
    )
    acme = open_organization(make)
    for number in range(sign_up.MAX_REGISTRATIONS_PER_NETWORK):
        register(acme, email=f"n{number}@example.com", ip_address=f"192.0.2.{number}")
    with pytest.raises(TooManyRequests) as refused:
        register(acme, email="more@example.com")
    assert refused.value.retry_after > 0
    # PW-6: what is refused costs no password hash.
    assert len(hashed) == sign_up.MAX_REGISTRATIONS_PER_NETWORK
    register(acme, email="more@example.com", ip_address="198.51.100.1")
