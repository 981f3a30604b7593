"""Memory: what a password hash took goes back to the system when it is done, and threads take no store of their own.

Both are words to the C library, before the first thread begins. Other libraries than glibc know no such words, and need
none.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """Blocks of a megabyte and more, the 19 MiB of argon2id above all, are the system's again once they are free.

    The C library otherwise learns from the first of them to keep such blocks, in an arena for each thread: eight
    threads that have each hashed once held 150 MB for ever. Mapping afresh costs nothing that could be measured.
    """
    _tell(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def share_one_arena() -> None:
    """Threads allocate from one arena; what one has freed, the next one uses.

    Each would otherwise keep an arena, so that they need not wait for each other. Python's threads wait for each other
    anyway, and the arenas of eight held 8 MB of a worker under load.
    """
    _tell(_M_ARENA_MAX, 1)


def _tell(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
