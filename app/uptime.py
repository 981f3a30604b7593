"""A clock that is never set: the time since the machine started, for durations and for the age of cached values."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

# Unlike CLOCK_MONOTONIC it also goes on while the machine is suspended. Only Linux has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

uptime: Callable[[], float] = functools.partial(time.clock_gettime, _CLOCK)
"""Return seconds since an arbitrary start. It goes on while the process is stopped, and no time service steps it."""
