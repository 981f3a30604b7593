"""Settings of the C library's memory allocator: return large blocks to the system, and share one arena between threads.

Both must be set before the first thread starts. Other libraries than glibc do not have these options and do not need
them.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_LARGE_BYTES = 1 << 20


def release_large_blocks() -> None:
    """Return blocks of a megabyte and more to the system when they are freed, above all the 19 MiB of argon2id.

    Otherwise glibc learns from the first of them to keep such blocks in an arena per thread: eight threads that had
    each hashed once held 150 MB permanently. Mapping the memory again has no measurable cost.
    """
    _set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def use_single_arena() -> None:
    """Let threads allocate from one arena, so that one thread reuses what another has freed.

    Separate arenas would avoid contention, but Python's threads wait for each other anyway, and the arenas of eight
    threads held 8 MB of a worker under load.
    """
    _set_option(_M_ARENA_MAX, 1)


def _set_option(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
