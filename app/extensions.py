"""Flask extensions: created here, configured by the application factory."""

from __future__ import annotations

from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from flask_wtf import CSRFProtect

from app.models.base import Base

db = SQLAlchemy(model_class=Base, disable_autonaming=True)
csrf = CSRFProtect()
login_manager = LoginManager()
