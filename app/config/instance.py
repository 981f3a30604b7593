"""The instance folder: whether files can be stored in it, and what to do if they cannot."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from msgspec import Struct

# What a start needs: the two keys, the cache stamps and a checkpoint.
_NEEDED_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FolderFault(Struct, frozen=True):
    """Why files cannot be stored in a folder, and how to repair that."""

    problem: str
    fix: str
    is_full: bool

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}"


def fault_of(folder: Path, error: OSError) -> FolderFault:
    """Return what the error of an attempt to store something in the folder means."""
    problem = f"Nothing can be stored in {folder} ({error.strerror})."
    if error.errno in _FULL:
        return FolderFault(problem, "Free up space on its file system.", is_full=True)
    if error.errno == errno.EROFS:
        fix = "Mount its file system writable, or choose another folder."
    else:
        fix = "Check its owner and mode, or choose another folder."
    return FolderFault(problem, fix, is_full=False)


def find_fault(folder: Path) -> FolderFault | None:
    """Return why files cannot be stored in the folder, or None if they can. It is created if it is missing."""
    probe = folder / f".probe.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _NEEDED_BYTES)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        return fault_of(folder, error)
    return None
