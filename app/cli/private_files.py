"""Files that commands write and only their owner may read (KY-7): personal data, password hashes and archives."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def open_private(path: str, flags: int) -> int:
    """Open a file for ``open`` and make it private, also one that others could read before."""
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def replaced_privately(path: Path) -> Iterator[BinaryIO]:
    """Write a private file beside ``path``, and give it that name once it is complete.

    An existing file may be the only copy until then. Of two commands that write it at once, the last one wins. Raises
    OSError, also if there is something else than a file, such as a terminal.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
