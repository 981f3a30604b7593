"""Settings that come with an organization from another installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.tenancy.ceilings import Bounds
from app.rules.tenancy.setting_kinds import Ours
from app.rules.tenancy.settings import NO_BOUNDS, Document, merge
from app.rules.tenancy.settings_table import SETTINGS


def brought_in(foreign: Mapping[str, Any], bounds: Bounds = NO_BOUNDS) -> Document:
    """The overrides of an organization that comes from another installation, judged as if somebody sent them here.

    What this service makes itself may stand in them: it comes along. Raises InvalidInput naming every wrong field,
    also for what the instance's ceilings do not allow.
    """
    ours = frozenset(path for path, setting in SETTINGS.items() if isinstance(setting.kind, Ours))
    return merge({}, foreign, bounds, made_here=ours)
