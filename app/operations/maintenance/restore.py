"""After a backup was restored: invalidate what it may have revived, and end again what an audit export says (BK-2).

Whatever was issued before is invalidated by cutoffs of the organizations, so that a million tokens cost as much as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import field
from sqlalchemy import select, update

from app.fast_path import cache_invalidation
from app.models.client import Credential
from app.models.organization import Organization
from app.models.user import ACTIVE
from app.operations.directory.lookups import get_root_organization, touch_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.maintenance.exported_events import RESTORE, EndedAgain, end_again, read_export
from app.operations.organizations.administrators import list_administrators
from app.operations.store import audit, checkpoints, clock, outages
from app.operations.store.rows import iterate_pages
from app.operations.store.transactions import count_changed, transaction
from app.operations.users.password_resets import issue_reset_link
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN
from app.rules.errors import Conflict, DomainError, NotFound
from app.rules.identifiers import parse_client_id


class RestoreReport(EndedAgain, kw_only=True):
    """The result of a restore, with what it did with each event of the audit export.

    Everything issued before ``at`` is invalid. ``links`` are links to new passwords for the administrators of root, by
    email; None was sent by email.
    """

    at: datetime
    epoch: str = ""
    organizations: int = 0
    blocks_secrets: bool = True
    resets_passwords: bool = True
    links: dict[str, str | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the receipt, without the links."""
        return {
            "issued_before": self.at.isoformat(),
            "epoch": self.epoch,
            "organizations": self.organizations,
            "secrets": "blocked" if self.blocks_secrets else "kept",
            "passwords": "reset" if self.resets_passwords else "kept",
            "ended_again": self.ended_again,
            "failed": self.failed,
            "not_in_backup": self.not_in_backup,
            "to_review": self.to_review,
        }


def invalidate_restored_state(
    exports: Iterable[Iterable[str]] = (), *, block_secrets: bool = True, reset_passwords: bool = True
) -> RestoreReport:
    """Invalidate everything that was issued before now in every organization, and begin a new epoch.

    Tokens, sessions, codes, device codes, pending requests, registrations of users, invitations, links, tokens of
    client registrations and recovery codes are invalid. With ``block_secrets``, client secrets do not work until they
    are confirmed, and with ``reset_passwords``, users choose new passwords. ``exports`` are audit exports, one JSON
    object per line: what ended after the backup ends again. Running it again is harmless. Raises, before anything was
    changed, InvalidInput if an export cannot be read, and Conflict while a server runs: what it decided by the state
    from before, such as a sign-in whose password it has verified, could be stored after the cutoff. Audit:
    ``instance.restored`` in root, and of each operation.
    """
    events = [event for lines in exports for event in read_export(lines)]
    if outages.is_served():
        raise Conflict("A server is running on this database. Stop all servers, then run this again.")
    root = get_root_organization()
    report = RestoreReport(at=clock.now(), blocks_secrets=block_secrets, resets_passwords=reset_passwords)
    report.organizations = _set_cutoffs(root, report)
    end_again(events, report)
    _finish(root, report)
    if reset_passwords:
        _invite_root_administrators(root, report)
    return report


@transaction
def confirm_secrets(actor: Actor, client_id: str | None = None) -> int:
    """Let the blocked secrets of a client, or of all clients of the actor's organization, work again.

    Return how many. Audit: ``credential.confirmed``. Raises NotFound for a malformed ``client_id``.
    """
    actor.require("credentials:write")
    condition = (
        (Credential.organization_id == actor.organization_id)
        & Credential.revoked_at.is_(None)
        & (Credential.created_at < _secrets_cutoff(actor.organization_id))
        & (
            Credential.confirmed_at.is_(None)
            | (Credential.confirmed_at < _secrets_cutoff(actor.organization_id))
        )
    )
    if client_id is not None:
        parsed = parse_client_id(client_id)
        if parsed is None:
            raise NotFound("There is no such client.")
        condition = condition & (Credential.client_id == parsed[1])
    confirmed = count_changed(update(Credential).where(condition).values(confirmed_at=clock.now()))
    if confirmed:
        audit.record(
            actor,
            "credential.confirmed",
            None if client_id is None else "client",
            client_id,
            after={"secrets": confirmed},
        )
        touch_organization(actor.organization_id)
    return confirmed


def _secrets_cutoff(organization_id: str) -> Any:
    return select(Organization.secrets_not_before).where(Organization.id == organization_id).scalar_subquery()


@transaction
def _set_cutoffs(root: OrganizationSnapshot, report: RestoreReport) -> int:
    changed = count_changed(
        update(Organization).values(version=Organization.version + 1, **cutoffs_of(report))
    )
    cache_invalidation.invalidate_all(root.id)
    return changed


def cutoffs_of(report: RestoreReport) -> dict[str, datetime]:
    """Return the columns of an organization whose state from before ``report.at`` becomes invalid."""
    values = {"restored_at": report.at, "tokens_valid_from": report.at}
    if report.blocks_secrets:
        values["secrets_not_before"] = report.at
    if report.resets_passwords:
        values["passwords_not_before"] = report.at
    return values


@transaction
def _finish(root: OrganizationSnapshot, report: RestoreReport) -> None:
    report.epoch = checkpoints.begin_epoch(root.id).epoch
    after = report.to_json() | {name: len(getattr(report, name)) for name in EndedAgain.__struct_fields__}
    audit.record(Actor.system(root.id, RESTORE), "instance.restored", after=after)


def _invite_root_administrators(root: OrganizationSnapshot, report: RestoreReport) -> None:
    """Send links to the active administrators of root, unless nobody there signs in with a password."""
    if not root.settings["authentication"]["password"]["enabled"]:
        return
    system = Actor.system(root.id, RESTORE)
    for record in iterate_pages(list_administrators, system, root.slug, filters={"role": ADMIN}):
        if record.status != ACTIVE:
            continue
        try:
            report.links[record.email] = issue_reset_link(system, record.user_id).link
        except DomainError as error:
            report.failed.append(f"{root.slug} no link for {record.email}: {error.description}")
