"""Passwords that another system hashed: they sign in, are renewed at once, and nobody learns by time who has one."""

from __future__ import annotations

import statistics
import time
from typing import Any

import bcrypt
import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.user import User
from app.operations.directory.users import MAX_PASSWORD_SCHEMES, list_password_schemes
from app.operations.sign_in.sign_in import SignedIn, SignInRefused, sign_in
from app.operations.users.deletion import delete_user
from app.rules.sign_in.imported_hashes import dummy_imported_hash, parse_hash
from tests.factories import MadeUser

pytestmark = pytest.mark.usefixtures("context")
PASSWORD = "what they typed elsewhere"


def taken_over(make: Any, organization: Any, stored: str, scheme: str) -> MadeUser:
    """A user with a hash that another system made."""
    user = make.user(organization)
    db.session.execute(
        update(User).where(User.id == user.id).values(password_hash=stored, password_scheme=scheme)
    )
    db.session.commit()
    return MadeUser(organization, user.id, user.email, PASSWORD)


def of_bcrypt(make: Any, organization: Any, cost: int = 8) -> MadeUser:
    found = parse_hash(bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(cost)).decode())
    return taken_over(make, organization, found.stored, found.scheme)


def kept(user: MadeUser) -> tuple[str, str | None]:
    row = db.session.execute(select(User.password_hash, User.password_scheme).where(User.id == user.id)).one()
    return row.password_hash, row.password_scheme


@pytest.mark.usefixtures("real_hashes")
def test_pw5_the_first_sign_in_makes_another_systems_hash_ours(make: Any) -> None:
    acme = make.organization()
    ada = of_bcrypt(make, acme)
    assert isinstance(sign_in(acme.id, ada.email, "wrong"), SignInRefused)
    assert kept(ada)[0].startswith("$2b$")
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    stored, scheme = kept(ada)
    assert (stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$"), scheme) == (True, None)
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert kept(ada)[0] == stored


def test_schemes_are_those_that_somebody_still_has(make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    people = [of_bcrypt(make, acme), of_bcrypt(make, acme), of_bcrypt(make, acme, 9)]
    assert list_password_schemes(acme.id) == ("bcrypt 8", "bcrypt 9")
    assert list_password_schemes(globex.id) == ()
    assert isinstance(sign_in(acme.id, people[2].email, PASSWORD), SignedIn)
    delete_user(make.system(acme), people[0].public_id)
    assert list_password_schemes(acme.id) == ("bcrypt 8",)
    for number in range(5):
        taken_over(
            make,
            acme,
            dummy_imported_hash(f"pbkdf2-sha256 {1000 + number}"),
            f"pbkdf2-sha256 {1000 + number}",
        )
    assert len(list_password_schemes(acme.id)) == MAX_PASSWORD_SCHEMES


@pytest.mark.usefixtures("real_hashes")
def test_en1_a_wrong_password_costs_the_same_whosever_it_is(make: Any) -> None:
    """EN-1: of nobody, of somebody with our hash, and of somebody who has not signed in since the import."""
    acme = make.organization(settings={"authentication": {"lockout": {"max_failures": 100}}})
    people = ["nobody@example.com", make.user(acme).email, of_bcrypt(make, acme, 9).email]
    of_bcrypt(make, acme, 8)
    taken: dict[str, list[float]] = {email: [] for email in people}
    for _ in range(12):
        for email in people:
            started = time.perf_counter()
            assert isinstance(sign_in(acme.id, email, "a wrong one"), SignInRefused)
            taken[email].append(time.perf_counter() - started)
    medians = [statistics.median(times) for times in taken.values()]
    # Without the balance the last one takes three times as long as the others.
    assert max(medians) < 1.4 * min(medians), taken
