"""Recovery codes: their number is a setting, each works once, and new ones replace the old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.sign_in import factor_enrollment, second_factors
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.sign_in.second_factors import recovery_code_digest
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.authenticator import signed_in_actor, with_app
from tests.support.databases import Database
from tests.support.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("context")
BROWSER = Browser("this browser")


@pytest.fixture
def ada(make: Any) -> Any:
    acme = make.organization(settings={"authentication": {"mfa": {"recovery_codes": 6}}})
    return make.user(acme, email="ada@acme.example")


def sign_in_with_code(user: Any, code: str) -> Any:
    """Return the result of signing in with the password and the code."""
    step = sign_in(user.organization.id, user.email, PASSWORD, browser=BROWSER)
    assert isinstance(step, SecondStepRequired), step
    return verify_code(Actor.anonymous(user.organization.id), user.organization, step.token, code, BROWSER)


def test_configured_number_of_codes_is_created_and_stored_as_digests(
    app: Any, ada: Any, database: Database
) -> None:
    """MF-4."""
    codes = with_app(app, ada).codes
    assert len(set(codes)) == 6
    kept = {bytes(row[0]) for row in database.query("SELECT digest FROM recovery_codes")}
    assert kept == {recovery_code_digest(code.replace("-", "")) for code in codes}


def test_code_replaces_the_app_once(app: Any, ada: Any, database: Database) -> None:
    """MF-4: single use, and the remaining number is shown."""
    codes = with_app(app, ada).codes
    assert isinstance(sign_in_with_code(ada, codes[0].upper().replace("-", " ")), SignedIn)
    assert sign_in_with_code(ada, codes[0]) == InvalidCode(4)
    assert isinstance(sign_in_with_code(ada, codes[1]), SignedIn)
    assert factor_enrollment.own_factors(signed_in_actor(ada)).codes_left == 4
    assert audited(database, "recovery_code.used") == 2


def test_owner_is_notified_of_new_codes(app: Any, ada: Any, box: Mailbox, deliver: Callable[[], int]) -> None:
    """MF-4: someone with a stolen session can replace the codes, but the owner is notified."""
    with_app(app, ada)
    deliver()
    box.mails.clear()
    factor_enrollment.regenerate_recovery_codes(signed_in_actor(ada, amr=("pwd", "otp", "mfa")))
    deliver()
    assert [(mail["To"], mail["Subject"]) for mail in box.mails] == [
        (ada.email, "New recovery codes for your Acme account")
    ]


def test_code_of_another_user_is_rejected(app: Any, make: Any, ada: Any) -> None:
    """MF-4: also of the same organization, and the attempt does not use it up."""
    eve = make.user(ada.organization)
    codes = with_app(app, ada).codes
    with_app(app, eve)
    assert sign_in_with_code(eve, codes[0]) == InvalidCode(4)
    assert isinstance(sign_in_with_code(ada, codes[0]), SignedIn)


def test_wrong_recovery_codes_count_as_wrong_codes(app: Any, ada: Any) -> None:
    """MF-3, MF-4: there is one counter for both."""
    with_app(app, ada)
    tries = [sign_in_with_code(ada, code) for code in ("0" * 24, "000000", "1" * 24, "", "x")]
    assert [wrong.attempts_left for wrong in tries] == [4, 3, 2, 1, 0]


def test_new_codes_replace_the_old(app: Any, ada: Any, database: Database) -> None:
    """MF-4: after a sign-in with the factor."""
    old = with_app(app, ada).codes
    with pytest.raises(FreshSignInRequired):
        factor_enrollment.regenerate_recovery_codes(signed_in_actor(ada))
    new = factor_enrollment.regenerate_recovery_codes(signed_in_actor(ada, amr=("pwd", "otp", "mfa")))
    assert not set(old) & set(new) and len(new) == 6
    assert sign_in_with_code(ada, old[0]) == InvalidCode(4)
    assert isinstance(sign_in_with_code(ada, new[0]), SignedIn)
    assert audited(database, "recovery_codes.renewed") == 1


def test_codes_need_a_factor_and_are_deleted_with_the_last(app: Any, ada: Any) -> None:
    with pytest.raises(Conflict) as refused:
        factor_enrollment.regenerate_recovery_codes(signed_in_actor(ada))
    assert refused.value.code == "no_second_factor"
    with_app(app, ada)
    factor_enrollment.remove_authenticator_app(signed_in_actor(ada, amr=("pwd", "otp", "mfa")))
    assert second_factors.count_recovery_codes(ada.organization.id, ada.id) == 0
    assert isinstance(sign_in(ada.organization.id, ada.email, PASSWORD), SignedIn)


def test_owner_is_notified_of_each_use(app: Any, ada: Any, box: Mailbox, deliver: Any) -> None:
    codes = with_app(app, ada).codes
    sign_in_with_code(ada, codes[0])
    factor_enrollment.remove_authenticator_app(signed_in_actor(ada, amr=("pwd", "otp", "mfa")))
    deliver()
    said = [mail["Subject"] for mail in box.mails if "browser" not in mail["Subject"]]
    assert said == [
        "A verification method was added to your Acme account",
        "A recovery code of your Acme account was used",
        "Two-step verification was changed for your Acme account",
    ]
