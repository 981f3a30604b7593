"""Checkpoints of the database, kept outside of it, so that a start recognizes a database that was put back (BK-1).

Every ten seconds one worker raises a number in the database, and every host writes the number that it has seen into a
file of its instance folder. A database whose number is lower than the file's has lost what was committed since: what
was revoked, used or deleted then is valid again. Nothing is served from it until ``maintenance restore`` has run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import exc, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.config import UnsafeConfiguration, command_line, current, fault_of
from app.database import engines
from app.extensions import db
from app.models.audit import InstanceFact
from app.models.organization import Organization
from app.operations.store import clock, keyring
from app.operations.store.transactions import (
    count_changed,
    insert_or_update,
    on_commit,
    read,
    transaction,
)
from app.rules.organizations.organizations import ROOT_SLUG

INTERVAL = timedelta(seconds=10)
_FACT = "checkpoint"
# Each restore adds one. A host that has not served since an older one learns that its file is too old to compare.
_MAX_EPOCHS = 100
_log = logging.getLogger("gatehouse.checkpoints")


class Checkpoint(Struct, frozen=True):
    """How far a database has come: ``sequence`` counts within an epoch, and each restore begins a new epoch.

    ``epochs`` are the epochs that the database went through, the current one last.
    """

    epochs: tuple[str, ...]
    sequence: int

    @property
    def epoch(self) -> str:
        """The current epoch."""
        return self.epochs[-1]

    def includes(self, seen: Checkpoint) -> bool:
        """Return whether what was committed at ``seen`` is in this database, or was given up by a restore."""
        if seen.epoch == self.epoch:
            return seen.sequence <= self.sequence
        return seen.epoch in self.epochs

    def to_json(self) -> dict[str, Any]:
        """Return the checkpoint as the file holds it."""
        return {"epochs": list(self.epochs), "sequence": self.sequence}


def require_current_database() -> None:
    """Raise UnsafeConfiguration if this host has seen a later checkpoint of the database than the database has.

    Nothing is checked for a database without a root organization, or while the database cannot be read.
    """
    try:
        # This runs before migrations, so it reads only columns that every release has.
        with engines()[0].connect() as connection:
            root_id = connection.scalar(select(Organization.id).where(Organization.slug == ROOT_SLUG))
            # The file before the checkpoint: other workers of this host raise both meanwhile, the file last.
            seen = None if root_id is None else _read_file(root_id)
            value = connection.scalar(select(InstanceFact.value).where(InstanceFact.name == _FACT))
    except (exc.DBAPIError, exc.TimeoutError):
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsafeConfiguration(
            f"The checkpoint {_path(str(root_id))} cannot be read ({type(error).__name__}). Check its owner and mode, "
            "or delete it once you have made sure that the database is not an older copy."
        ) from error
    finally:
        # A server that forks workers after this must not share the connection with them.
        engines()[0].dispose()
    if seen is None or (value is not None and _parse(value).includes(seen)):
        return
    raise UnsafeConfiguration(
        "This database is older than it was when this host last served it, as after restoring a backup. What was "
        "revoked, used or deleted since would be valid again. To serve it, run: "
        f"{command_line('maintenance restore')} (it is compared with {_path(str(root_id))})"
    )


@read
def find_checkpoint() -> Checkpoint | None:
    """Return the database's checkpoint, or None before the first one."""
    fact = _find_fact()
    return None if fact is None else _parse(fact.value)


def advance() -> None:
    """Raise the checkpoint if that was not done in the last ten seconds, and write the current one into the file.

    Every worker calls it. A database that has fallen behind the file while it was served is only logged.
    """
    root_id = _find_root_id()
    if root_id is None:
        return
    # The file first: between the two, another worker of this host may raise the checkpoint and write the file.
    seen = _read_file(root_id)
    try:
        found = _raise_if_due(root_id)
    except IntegrityError:
        # Another worker has just created it.
        return
    if seen is not None and not found.includes(seen):
        _log.error(
            "the database has been put back to an earlier state while it was served: stop, and restore it"
        )
        return
    if seen != found:
        _write_file(root_id, found)


@read
def find_epoch(root_id: str) -> str | None:
    """Return the current epoch, or None before the first one and if it was written without the instance's keys."""
    fact = _find_fact()
    if fact is None:
        return None
    found = _parse(fact.value)
    is_own = hmac.compare_digest(str(fact.value.get("mac")), _mac(root_id, found.epochs))
    return found.epoch if is_own else None


@read
def find_other_secret_key() -> str | None:
    """Return the fingerprint of the secret key of the server that served last, if it is another than this process's.

    A server that stopped more than a minute ago is not counted, so that the key can be replaced.
    """
    fact = _find_fact()
    if fact is None or not abs(clock.now() - fact.updated_at) < 6 * INTERVAL:
        return None
    found = fact.value.get("secret_key")
    return None if found in {None, keyring.fingerprint(current().secret_key)} else str(found)


@transaction
def begin_epoch(root_id: str) -> Checkpoint:
    """Begin a new epoch: this database may be served, although later checkpoints of it were seen."""
    known = [each for each in (find_checkpoint(), _read_file(root_id)) if each is not None]
    epochs = list(dict.fromkeys(epoch for each in known for epoch in each.epochs))
    made = Checkpoint((*epochs[-_MAX_EPOCHS:], secrets.token_hex(8)), 1)
    values = {"value": _document(root_id, made), "updated_at": clock.now()}
    insert_or_update(InstanceFact, {"name": _FACT}, values)
    on_commit(lambda: _write_file(root_id, made))
    return made


@read
def _find_root_id() -> str | None:
    return db.session.scalar(select(Organization.id).where(Organization.slug == ROOT_SLUG))


@transaction
def _raise_if_due(root_id: str) -> Checkpoint:
    """Raise the checkpoint if that is due; return the one that this transaction has seen or made."""
    fact = _find_fact()
    now = clock.now()
    if fact is None:
        # Never an update: another worker may have created the first one since, and its host may have seen it.
        first = Checkpoint((secrets.token_hex(8),), 1)
        values = {"value": _document(root_id, first), "updated_at": now}
        db.session.execute(insert(InstanceFact).values(name=_FACT, **values))
        return first
    secret_key = keyring.fingerprint(current().secret_key)
    raised = {**fact.value, "sequence": fact.value["sequence"] + 1, "secret_key": secret_key}
    # A clock that stepped back must not stop the counting.
    is_due = not now - INTERVAL < fact.updated_at <= now
    is_raised = is_due and count_changed(
        update(InstanceFact)
        .where(InstanceFact.name == _FACT, InstanceFact.updated_at == fact.updated_at)
        .values(value=raised, updated_at=now)
    )
    return _parse(raised if is_raised else fact.value)


def _find_fact() -> InstanceFact | None:
    return db.session.get(InstanceFact, _FACT, populate_existing=True)


def _document(root_id: str, checkpoint: Checkpoint) -> dict[str, Any]:
    return {**checkpoint.to_json(), "mac": _mac(root_id, checkpoint.epochs)}


def _mac(root_id: str, epochs: tuple[str, ...]) -> str:
    key = keyring.derive_organization_key(root_id, "checkpoint")
    return hmac.new(key, ",".join(epochs).encode(), hashlib.sha256).hexdigest()


def _parse(value: Any) -> Checkpoint:
    return Checkpoint(tuple(value["epochs"]), int(value["sequence"]))


def _path(root_id: str) -> Path:
    """Return the file of the installation with this root organization, whose id no other installation has."""
    return current().instance / f"checkpoint-{root_id}.json"


def _read_file(root_id: str) -> Checkpoint | None:
    try:
        return _parse(json.loads(_path(root_id).read_text()))
    except FileNotFoundError:
        return None


def _write_file(root_id: str, checkpoint: Checkpoint) -> None:
    write_private_file(_path(root_id), checkpoint.to_json())


def write_private_file(path: Path, document: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace the file by the document in one step, with mode 0600; ``durable`` waits for the disk.

    A failure is logged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        _log.warning("%s could not be written. %s", path, fault_of(path.parent, error))
