"""A machine clock that a test sets while a process runs, by a library that is preloaded into it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


class SetClock:
    """The clock of the processes that are started with ``environment``; its files are in ``folder``.

    The path of the folder contains no space, which would end it in LD_PRELOAD.

    CLOCK_MONOTONIC and CLOCK_BOOTTIME go on undisturbed, as they do when an operator or a time service sets a clock.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._offset, self._library = folder / "offset", folder / "set_clock.so"
        self._offset.write_bytes(bytes(8))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"], check=True
        )

    def set(self, seconds: int) -> None:
        """Set the clock to so many seconds from the real time."""
        # In place: the processes have mapped the file into their memory.
        with self._offset.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a process with this clock."""
        return {"LD_PRELOAD": str(self._library), "SET_CLOCK_FILE": str(self._offset)}
