"""Authenticator apps: verified before they are active, sealed, with single-use codes."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.second_factor import AuthenticatorApp, PendingSignIn, SecondFactorTry
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import factor_enrollment, second_factors
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn
from app.operations.store.transactions import transaction
from app.operations.users.deletion import delete_user
from app.operations.users.users import disable_user
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.authenticator import Authenticator, secret_in, set_rows, signed_in_actor, with_app
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
BROWSER = Browser("this browser", "tests")


@pytest.fixture
def phone(app: Any, ada: Any) -> Authenticator:
    return with_app(app, ada)


def begin_second_step(user: Any, browser: Browser = BROWSER) -> str:
    """Return the token of the pending sign-in after the password."""
    step = sign_in(user.organization.id, user.email, PASSWORD, browser=browser)
    assert isinstance(step, SecondStepRequired), step
    return step.token


def verify(user: Any, token: str, code: str, browser: Browser = BROWSER) -> Any:
    stranger = Actor.anonymous(user.organization.id, "192.0.2.7")
    return verify_code(stranger, user.organization, token, code, browser)


def test_adding_an_app_requires_fresh_sign_in_and_valid_code(app: Any, ada: Any) -> None:
    """MF-2: neither a stale sign-in nor a wrong code sets up a factor."""
    who = signed_in_actor(ada)
    new = factor_enrollment.begin_authenticator_app(who)
    shown = Authenticator(app, ada, secret_in(new.otpauth_uri)).shown()
    with pytest.raises(FreshSignInRequired):
        factor_enrollment.add_authenticator_app(signed_in_actor(ada, ago_seconds=3600), new.sealed, shown)
    wrong = f"{(int(shown) + 1) % 10**6:06}"
    with pytest.raises(InvalidInput) as refused:
        factor_enrollment.add_authenticator_app(who, new.sealed, wrong)
    assert [(error.field, error.code) for error in refused.value.errors] == [("code", "wrong_code")]
    assert second_factors.find_authenticator_app(ada.organization.id, ada.id) is None
    assert len(factor_enrollment.add_authenticator_app(who, new.sealed, shown).codes) == 10
    assert second_factors.find_authenticator_app(ada.organization.id, ada.id) is not None


def test_setup_page_is_bound_to_user_organization_and_time(
    app: Any, make: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-2, SE-6: the secret in the form is sealed for its owner for half an hour."""
    new = factor_enrollment.begin_authenticator_app(signed_in_actor(ada))
    shown = Authenticator(app, ada, secret_in(new.otpauth_uri)).shown()
    for other in (make.user(ada.organization), make.user(make.organization())):
        with pytest.raises(InvalidInput):
            factor_enrollment.add_authenticator_app(signed_in_actor(other), new.sealed, shown)
    for broken in ("", "AAAA", new.sealed[:-4], "é" * 40):
        with pytest.raises(InvalidInput):
            factor_enrollment.add_authenticator_app(signed_in_actor(ada), broken, shown)
    monkeypatch.setattr(factor_enrollment, "SETUP_LIFETIME", -factor_enrollment.SETUP_LIFETIME)
    old = factor_enrollment.begin_authenticator_app(signed_in_actor(ada))
    with pytest.raises(InvalidInput) as refused:
        factor_enrollment.add_authenticator_app(signed_in_actor(ada), old.sealed, shown)
    assert refused.value.errors[0].code == "page_too_old"


def test_stored_secret_is_sealed_for_its_user(
    make: Any, ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-2, SE-6: it cannot be opened in another user's row."""
    secret = base64.b32decode(phone.secret)
    [(sealed,)] = database.query("SELECT sealed_secret FROM authenticator_apps")
    assert secret not in bytes(sealed)
    assert second_factors.open_secret(ada.organization.id, ada.id, "app", bytes(sealed)) == secret
    eve = make.user(ada.organization)
    with pytest.raises(sealing.UnsealError):
        second_factors.open_secret(ada.organization.id, eve.id, "app", bytes(sealed))
    with pytest.raises(sealing.UnsealError):
        second_factors.open_secret(ada.organization.id, ada.id, "enrolment", bytes(sealed))


def test_code_is_accepted_once_including_the_setup_code(ada: Any, phone: Authenticator) -> None:
    """MF-1."""
    assert verify(ada, begin_second_step(ada), phone.shown()) == InvalidCode(4, was_used=True)
    code = phone.code()
    assert isinstance(verify(ada, begin_second_step(ada), code), SignedIn)
    assert verify(ada, begin_second_step(ada), code) == InvalidCode(4, was_used=True)


def test_code_of_an_earlier_step_is_rejected(ada: Any, phone: Authenticator) -> None:
    """MF-1: ``last_step < :s``, because someone may have seen an older code."""

    @transaction
    def later() -> None:
        db.session.execute(update(AuthenticatorApp).values(last_step=AuthenticatorApp.last_step + 5))

    later()
    assert verify(ada, begin_second_step(ada), phone.shown()) == InvalidCode(4, was_used=True)


def test_app_is_required_and_recorded_in_amr(ada: Any, phone: Authenticator, database: Database) -> None:
    """MF-6: the right password alone does not sign in."""
    signed_in = verify(ada, begin_second_step(ada), phone.code())
    assert isinstance(signed_in, SignedIn)
    [(amr,)] = database.query("SELECT CAST(amr AS CHAR) FROM sessions")
    assert amr == "pwd otp mfa"
    assert audited(database, "sign_in.first_proof_given") == 1
    assert audited(database, "session.started") == 1


def test_pending_sign_in_is_bound_to_browser_and_expires(
    ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-6: bound to organization and browser."""
    token = begin_second_step(ada)
    for browser in (Browser("another"), Browser("")):
        with pytest.raises(SignInEnded):
            verify(ada, token, phone.code(), browser)
    assert isinstance(verify(ada, token, phone.code()), SignedIn)
    with pytest.raises(SignInEnded):
        verify(ada, token, phone.code())
    late = begin_second_step(ada)
    set_rows(PendingSignIn, expires_at=LONG_AGO)
    with pytest.raises(SignInEnded):
        verify(ada, late, phone.code())


def test_pending_verification_cannot_enroll_another_factor(ada: Any, phone: Authenticator) -> None:
    """MF-6: adding another factor would bypass the existing one."""
    waiting = begin_second_step(ada)
    with pytest.raises(SignInEnded):
        factor_enrollment.get_pending_enrollment(ada.organization, waiting, BROWSER.id)
    stranger = Actor.anonymous(ada.organization.id)
    with pytest.raises(SignInEnded):
        factor_enrollment.add_authenticator_app_at_sign_in(
            stranger, ada.organization, waiting, "", phone.code(), BROWSER
        )


def test_pending_sign_in_of_another_organization_is_rejected(make: Any, app: Any, ada: Any) -> None:
    """TN-2."""
    with_app(app, ada)
    globex = make.organization()
    with pytest.raises(SignInEnded):
        verify_code(Actor.anonymous(globex.id), globex, begin_second_step(ada), "123456", BROWSER)


def test_five_wrong_codes_end_pending_sign_ins_in_every_browser(
    ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-3: counted per user, not per browser, and a new sign-in does not reset the count."""
    tokens = [begin_second_step(ada, Browser(f"browser {number}")) for number in range(5)]
    outcomes = [verify(ada, token, "000000", Browser(f"browser {n}")) for n, token in enumerate(tokens)]
    assert [(wrong.attempts_left, wrong.has_ended) for wrong in outcomes] == [
        (4, False),
        (3, False),
        (2, False),
        (1, False),
        (0, True),
    ]
    assert database.count("pending_sign_ins") == 0
    with pytest.raises(SignInEnded):
        verify(ada, tokens[0], phone.code(), Browser("browser 0"))
    waiting = verify(ada, begin_second_step(ada), phone.code())
    assert isinstance(waiting, InvalidCode) and 0 < waiting.retry_after <= 60 and not waiting.has_ended
    assert audited(database, "second_factor.failed") == 5
    set_rows(SecondFactorTry, failed_at=LONG_AGO)
    assert isinstance(verify(ada, begin_second_step(ada), phone.code()), SignedIn)


def test_right_code_resets_the_count(ada: Any, phone: Authenticator) -> None:
    """MF-3."""
    for _ in range(2):
        token = begin_second_step(ada)
        for left in (4, 3, 2, 1):
            assert verify(ada, token, "000000") == InvalidCode(left)
        assert isinstance(verify(ada, token, phone.code()), SignedIn)


def test_right_code_resets_the_count_before_another_step(
    make: Any, acme: Any, ada: Any, phone: Authenticator
) -> None:
    """MF-3: a user who does not set up the method that is required by now has guessed nothing."""
    document = {"authentication": {"mfa": {"policy": "required", "methods": ["passkey"]}}}
    update_settings(make.system(acme), acme.slug, document)
    current, stranger = get_organization_by_id(acme.id), Actor.anonymous(acme.id)
    step = verify_code(stranger, current, begin_second_step(ada), phone.code(), BROWSER)
    assert isinstance(step, SecondStepRequired)
    assert verify(ada, begin_second_step(ada), "000000") == InvalidCode(4)


def test_adding_a_factor_ends_other_sessions_and_pending_sign_ins(
    make: Any, ada: Any, app: Any, database: Database
) -> None:
    """SS-6."""
    make.sign_in(ada)
    with_app(app, ada)
    assert database.count("sessions") == 0
    begin_second_step(ada)
    assert database.count("pending_sign_ins") == 1
    change_password(signed_in_actor(ada), PASSWORD, "a wholly different password")
    assert database.count("pending_sign_ins") == 0


def test_second_app_and_disallowed_method_are_rejected(
    make: Any, app: Any, ada: Any, phone: Authenticator
) -> None:
    who = signed_in_actor(ada, amr=("pwd", "otp", "mfa"))
    new = factor_enrollment.begin_authenticator_app(who)
    with pytest.raises(Conflict):
        factor_enrollment.add_authenticator_app(
            who, new.sealed, Authenticator(app, ada, secret_in(new.otpauth_uri)).shown()
        )
    off = make.organization(settings={"authentication": {"mfa": {"methods": ["passkey"]}}})
    eve = make.user(off)
    other = factor_enrollment.begin_authenticator_app(signed_in_actor(eve))
    with pytest.raises(Conflict) as refused:
        factor_enrollment.add_authenticator_app(
            signed_in_actor(eve), other.sealed, Authenticator(app, eve, secret_in(other.otpauth_uri)).shown()
        )
    assert refused.value.code == "method_not_allowed"


def test_account_can_only_be_changed_by_its_owner(make: Any, ada: Any) -> None:
    root = make.root()
    visiting = Actor("user", ada.organization.id, root.id, user_id=ada.id)
    with pytest.raises(Forbidden):
        factor_enrollment.begin_authenticator_app(visiting)


def test_disabled_user_cannot_complete_sign_in(make: Any, acme: Any, ada: Any, phone: Authenticator) -> None:
    token = begin_second_step(ada)
    disable_user(make.actor(acme), ada.id)
    with pytest.raises(SignInEnded):
        verify(ada, token, phone.code())
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignInRefused)


def test_deleting_a_user_deletes_factors(make: Any, acme: Any, ada: Any, phone: Authenticator) -> None:
    delete_user(make.actor(acme), ada.public_id)
    assert db.session.scalars(select(AuthenticatorApp)).all() == []
