"""The keys of the instance, read from the environment or a file, and generated once where that is safe.

A key may be wrapped by a key management service: see ``kms``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from .instance import fault_of
from .kms import split_wrapped, unwrap_key
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


# The variables of keys, and their files in the instance folder.
KEY_FILES = {
    "GATEHOUSE_SECRET_KEY": "secret.key",
    "GATEHOUSE_MASTER_KEY": "master.key",
    "GATEHOUSE_PREVIOUS_MASTER_KEY": None,
}


def unwrap_keys(env: Mapping[str, str], instance: Path) -> dict[str, str]:
    """Return the keys that a service wrapped, unwrapped, by variable; without those that are plain or missing.

    Raises UnsafeConfiguration if the service refuses or, with exit status 75, does not answer.
    """
    found = {}
    for variable in KEY_FILES:
        if (wrapped := find_wrapped(env, variable, instance)) is not None:
            found[variable] = unwrap_key(env, *wrapped).hex()
    return found


def find_wrapped(env: Mapping[str, str], variable: str, instance: Path) -> tuple[str, str] | None:
    """Return (URL of the service's key, ciphertext) if the variable's key is wrapped, without unwrapping it."""
    require_one_source(env, variable)
    text = env.get(variable)
    if text is None:
        named = env.get(f"{variable}_FILE")
        default = KEY_FILES[variable]
        path = Path(named) if named is not None else instance / default if default else None
        if path is None or not path.is_file():
            return None
        text = _read_text(path)
    return split_wrapped(text)


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
    return _parse_key(_read_text(path), str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
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
