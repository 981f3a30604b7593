"""Flask-Login's idea of a user, over a session row; its own cookies and ``login_user`` are not used (SS-1)."""

from __future__ import annotations

from flask_login import UserMixin

from app.operations.sign_in.sessions import SessionRecord


class SignedInUser(UserMixin):
    """``current_user`` of views: who is signed in at the organization of the URL."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session

    @property
    def id(self) -> str:
        """``usr_…``."""
        return self.session.user_public_id

    @property
    def email(self) -> str:
        """The address that the user signs in with."""
        return self.session.user_email

    @property
    def name(self) -> str:
        """The name to show."""
        return self.session.user_name or self.session.user_email
