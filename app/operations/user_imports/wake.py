"""The bell that the import worker of this process hears."""

from __future__ import annotations

import threading

may_be_due = threading.Event()
"""Set when this process has committed an import that has to be worked on."""
