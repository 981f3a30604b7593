"""Imported password hashes: sign-ins work and renew them, and timing does not reveal who has one."""

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
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users.deletion import delete_user
from app.rules.sign_in.imported_hashes import dummy_imported_hash, parse_hash
from tests.factories import MadeUser

pytestmark = pytest.mark.usefixtures("context")
PASSWORD = "what they typed elsewhere"


def import_user(make: Any, organization: Any, stored: str, scheme: str) -> MadeUser:
    """Create a user with a hash of another system."""
    user = make.user(organization)
    db.session.execute(
        update(User).where(User.id == user.id).values(password_hash=stored, password_scheme=scheme)
    )
    db.session.commit()
    return MadeUser(organization, user.id, user.email, PASSWORD)


def import_bcrypt_user(make: Any, organization: Any, cost: int = 8) -> MadeUser:
    found = parse_hash(bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(cost)).decode())
    return import_user(make, organization, found.stored, found.scheme)


def stored_hash(user: MadeUser) -> tuple[str, str | None]:
    row = db.session.execute(select(User.password_hash, User.password_scheme).where(User.id == user.id)).one()
    db.session.remove()
    return row.password_hash, row.password_scheme


@pytest.mark.usefixtures("real_hashes")
def test_first_sign_in_renews_imported_hash(make: Any) -> None:
    """PW-5."""
    acme = make.organization()
    ada = import_bcrypt_user(make, acme)
    assert isinstance(sign_in(acme.id, ada.email, "wrong"), SignInRefused)
    assert stored_hash(ada)[0].startswith("$2b$")
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    stored, scheme = stored_hash(ada)
    assert (stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$"), scheme) == (True, None)
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert stored_hash(ada)[0] == stored


def test_listed_schemes_are_those_in_use(make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    users = [
        import_bcrypt_user(make, acme),
        import_bcrypt_user(make, acme),
        import_bcrypt_user(make, acme, 9),
    ]
    assert list_password_schemes(acme.id) == ("bcrypt 8", "bcrypt 9")
    assert list_password_schemes(globex.id) == ()
    assert isinstance(sign_in(acme.id, users[2].email, PASSWORD), SignedIn)
    delete_user(make.system(acme), users[0].public_id)
    assert list_password_schemes(acme.id) == ("bcrypt 8",)
    for number in range(5):
        import_user(
            make,
            acme,
            dummy_imported_hash(f"pbkdf2-sha256 {1000 + number}"),
            f"pbkdf2-sha256 {1000 + number}",
        )
    assert len(list_password_schemes(acme.id)) == MAX_PASSWORD_SCHEMES


@pytest.mark.either
@pytest.mark.slow
@pytest.mark.usefixtures("real_hashes")
def test_wrong_password_takes_equally_long_for_every_account(make: Any) -> None:
    """EN-1: for no account, for one with a current hash, and for one that has not signed in since the import."""
    acme = make.organization(settings={"authentication": {"lockout": {"max_failures": 100}}})
    users = ["nobody@example.com", make.user(acme).email, import_bcrypt_user(make, acme, 9).email]
    import_bcrypt_user(make, acme, 8)
    taken: dict[str, list[float]] = {email: [] for email in users}
    for _ in range(6):
        for email in users:
            # Other processes do not change the processor time of this thread.
            started = time.thread_time()
            assert isinstance(sign_in(acme.id, email, "a wrong one"), SignInRefused)
            taken[email].append(time.thread_time() - started)
    medians = [statistics.median(times) for times in taken.values()]
    # Without equalization the last one takes three times as long as the others.
    assert max(medians) < 1.4 * min(medians), taken
