"""Memory: what a password hash took goes back to the system when it is done."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """Blocks of a megabyte and more, the 19 MiB of argon2id above all, are the system's again once they are free.

    The C library otherwise learns from the first of them to keep such blocks, in an arena for each thread: eight
    threads that have each hashed once held 150 MB for ever. Mapping afresh costs nothing that could be measured. Other
    C libraries than glibc have no such call, and need none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
