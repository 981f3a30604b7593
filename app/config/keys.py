"""The keys of the instance, read from the environment or a file, and generated once where that is safe."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from .instance import fault_of
from .settings import UnsafeConfiguration, require_one_source


def make_key(path: Path) -> bytes:
    """Create a 256-bit key in the file with mode 0600 and return it; return the existing one if there is one.

    Raises UnsafeConfiguration if the folder is full or read-only.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            # This is atomic: only the first of several workers succeeds.
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise UnsafeConfiguration(f"No key can be created. {fault_of(path.parent, error)}") from error
    return _read_key(path)


def key(env: Mapping[str, str], variable: str, path: Path, *, may_make: bool) -> bytes:
    """Return the key from the variable, from the file it names, or from ``path``, created there if ``may_make``."""
    require_one_source(env, variable)
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
        f"{variable} is not set and the file {path} does not exist. Create it once and keep a copy: "
        f"(umask 077; mkdir -p '{path.parent}'; openssl rand -hex 32 > '{path}')"
    )


def previous_key(env: Mapping[str, str], variable: str) -> bytes | None:
    """Return the key from the variable or from the file it names; None when neither is set."""
    require_one_source(env, variable)
    if variable in env:
        return _parse_key(env[variable], variable)
    named = env.get(f"{variable}_FILE")
    return None if named is None else _read_key(Path(named))


def _read_key(path: Path) -> bytes:
    try:
        return _parse_key(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UnsafeConfiguration(
            f"The key file {path} cannot be read ({type(error).__name__}). Check its owner and mode."
        ) from error


def _parse_key(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    # Repeated or consecutive bytes (000102…) are examples from documentation, never random keys.
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(key) != 32 or len(set(key)) < 12 or len(steps) < 12:
        raise UnsafeConfiguration(f"{source} is not a random 256-bit key. Generate one: openssl rand -hex 32")
    return key
