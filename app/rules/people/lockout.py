"""Lockout: how long somebody waits after failed attempts. The wait doubles and ends; nobody is locked out for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Lockout:
    """``authentication.lockout`` of an organization's settings."""

    max_failures: int
    window: timedelta
    delay: timedelta
    max_delay: timedelta

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Lockout:
        """The lockout of an effective settings document."""
        values = settings["authentication"]["lockout"]
        return cls(
            values["max_failures"],
            timedelta(seconds=values["window_seconds"]),
            timedelta(seconds=values["delay_seconds"]),
            timedelta(seconds=values["max_delay_seconds"]),
        )

    def from_failure(self, max_failures: int) -> Lockout:
        """The same, only that the waits begin after so many failures."""
        return replace(self, max_failures=max_failures)

    def seconds_to_wait(self, failures: int, last_failure: datetime | None, now: datetime) -> int:
        """Whole seconds until the next attempt may be made; 0 when it may be made now.

        ``failures`` are those within the window, the last of them at ``last_failure``.
        """
        if failures < self.max_failures or last_failure is None:
            return 0
        doublings = min(failures - self.max_failures, 20)
        wait = last_failure + min(self.delay * 2**doublings, max(self.delay, self.max_delay)) - now
        return max(0, -int(-wait.total_seconds() // 1))

    def tries_left(self, failures: int) -> int:
        """How many further attempts are answered without a wait."""
        return max(0, self.max_failures - failures)
