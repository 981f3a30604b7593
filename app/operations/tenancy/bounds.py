"""Bounds that the instance sets to all settings, as they stand now."""

from __future__ import annotations

from sqlalchemy import select

from app.extensions import db
from app.models.organization import SettingsCeilings
from app.operations.transaction import read
from app.rules.tenancy.ceilings import Bounds


@read
def standing_bounds() -> Bounds:
    """The ceilings by path of a setting; none where nothing was ever bounded."""
    found = db.session.scalar(select(SettingsCeilings.bounds))
    return found or {}
