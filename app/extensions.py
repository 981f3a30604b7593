"""Extensions: made here, configured in create_app."""

from __future__ import annotations

from typing import Any

from flask import request
from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from flask_wtf import CSRFProtect

from app.models.base import Base


class SignIns(LoginManager):
    """Flask-Login without its remember cookie, which anybody may send and whose check fails on a byte over 127."""

    def _load_user_from_remember_cookie(self, cookie: str) -> Any:
        return self._load_user_from_request(request)


db = SQLAlchemy(model_class=Base, disable_autonaming=True)
csrf = CSRFProtect()
login_manager = SignIns()
