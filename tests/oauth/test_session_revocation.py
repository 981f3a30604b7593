"""Credential changes end all other sessions and revoke the user's tokens (SS-6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.operations.directory.lookups import get_organization_by_id
from app.operations.sign_in.factor_enrollment import remove_authenticator_app
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sessions import find_session, start_session
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.operations.users.user_changes import update_user
from app.operations.users.users import disable_user, enable_user
from tests.factories import PASSWORD
from tests.oauth.conftest import Flow
from tests.oauth.test_refresh import is_refused
from tests.support.authenticator import signed_in_actor, with_app

NEW = "a wholly different password"
BOTH = ("pwd", "otp", "mfa")


def _is_disabled_and_let_in_again(flow: Flow) -> None:
    actor = flow.make.actor(flow.organization)
    disable_user(actor, flow.user.id)
    enable_user(actor, flow.user.id)


def _reset_by_link(flow: Flow) -> None:
    link = issue_reset_link(flow.make.actor(flow.organization), flow.user.id).link
    assert link is not None
    reset_password(get_organization_by_id(flow.organization.id), link.rpartition("/")[2], NEW)


CHANGES: dict[str, tuple[bool, Callable[[Flow], object]]] = {
    "the password is changed": (
        False,
        lambda flow: change_password(signed_in_actor(flow.user), PASSWORD, NEW),
    ),
    "the password is reset": (False, _reset_by_link),
    "a second factor is added": (False, lambda flow: with_app(flow.app, flow.user)),
    "the second factor is removed": (
        True,
        lambda flow: remove_authenticator_app(signed_in_actor(flow.user, amr=BOTH)),
    ),
    "an administrator resets the factors": (
        True,
        lambda flow: reset_user_factors(flow.make.actor(flow.organization), flow.user.public_id),
    ),
    "an administrator changes the address": (
        False,
        lambda flow: update_user(
            flow.make.actor(flow.organization), flow.user.public_id, {"email": "new@example.com"}
        ),
    ),
    "the user is disabled, and let in again": (False, _is_disabled_and_let_in_again),
}


def entered(flow: Flow) -> str:
    """Sign the user in again and return the new session value, which the browser keeps."""
    with flow.app.app_context():
        organization = get_organization_by_id(flow.organization.id)
        token, _ = start_session(organization, flow.user.id, amr=" ".join(BOTH))
    flow.http.set_cookie(flow.make.cookie_name(organization), token, domain="localhost")
    return token


@pytest.mark.parametrize(("has_factor", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_credential_change_ends_other_sessions_and_families(
    flow: Flow, has_factor: bool, change: Callable[[Flow], object]
) -> None:
    """SS-6: nothing is restored when the user may sign in again."""
    if has_factor:
        with_app(flow.app, flow.user)
    sign_in, tokens = entered(flow), flow.tokens()
    assert flow.is_alive(tokens["access_token"])
    with flow.app.app_context():
        assert find_session(sign_in) is not None
        change(flow)
        assert find_session(sign_in) is None
    assert not flow.is_alive(tokens["access_token"])
    assert is_refused(flow.refresh(tokens["refresh_token"]))
