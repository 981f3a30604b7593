"""Password resets end sessions and revoke every app's tokens (RP-3, SS-6)."""

from __future__ import annotations

from app.operations.users.password_resets import issue_reset_link, reset_password
from tests.oauth.conftest import Flow


def test_password_reset_revokes_tokens_of_every_app(flow: Flow) -> None:
    """RP-3, SS-6."""
    tokens = flow.tokens()
    assert flow.is_alive(tokens["access_token"])
    acme = flow.user.organization
    with flow.app.app_context():
        link = issue_reset_link(flow.make.actor(acme), flow.user.id).link
        reset_password(acme, link.rpartition("/")[2], "a wholly different password")
    assert not flow.is_alive(tokens["access_token"])
    assert flow.refresh(tokens["refresh_token"]).status_code == 400
