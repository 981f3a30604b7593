"""The keys of the instance: read from the environment or a file, made once where that is safe."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from .refusal import UnsafeConfiguration


def make_key(path: Path) -> bytes:
    """A fresh 256-bit key in the file, mode 0600; the standing one when another process was first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # a link appears whole or not at all, and only for the first of several workers
    finally:
        os.unlink(temporary)
    return _read_key(path)


def key(env: Mapping[str, str], variable: str, path: Path, *, may_make: bool) -> bytes:
    """The key in the variable, in the file it names, or in ``path``, where it ``may_make`` one."""
    if variable in env:
        return _parse_key(env[variable], variable)
    named = env.get(f"{variable}_FILE")
    if named is not None:
        path = Path(named)
    if path.exists():
        return _read_key(path)
    if named is None and may_make:
        return make_key(path)
    raise UnsafeConfiguration(
        f"{variable} is missing: there is no file {path}. Create it once and keep a copy: "
        f"(umask 077; mkdir -p '{path.parent}'; openssl rand -hex 32 > '{path}')"
    )


def previous_key(env: Mapping[str, str], variable: str) -> bytes | None:
    """The key in the variable or in the file it names; None when neither is set."""
    if variable in env:
        return _parse_key(env[variable], variable)
    named = env.get(f"{variable}_FILE")
    return None if named is None else _read_key(Path(named))


def _read_key(path: Path) -> bytes:
    try:
        return _parse_key(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UnsafeConfiguration(
            f"The key file {path} cannot be read: {type(error).__name__}. Look at its owner and mode."
        ) from error


def _parse_key(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    # Repeated bytes and counted ones (000102…) are samples of documents; no random key looks so.
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(key) != 32 or len(set(key)) < 12 or len(steps) < 12:
        raise UnsafeConfiguration(f"{source} is no 256-bit random key. Make one: openssl rand -hex 32")
    return key
