"""Events of an audit export: what they ended after a backup was made ends again once it is restored (BK-2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import delete, or_, select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import DISABLED, Credential
from app.models.grant import Consent
from app.models.organization import DELETED, SUSPENDED, Organization
from app.models.second_factor import Passkey
from app.models.user import User
from app.operations.authorization.connected_apps import revoke_consent
from app.operations.clients.access_decisions import withdraw_access
from app.operations.clients.access_records import AlreadyDecided
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.directory.lookups import (
    get_organization_by_slug,
    get_root_organization,
    touch_organization,
)
from app.operations.organizations.administrators import remove_administrator
from app.operations.organizations.organizations import delete_organization, update_organization
from app.operations.sign_in.identity_providers import delete_identity_provider, update_identity_provider
from app.operations.sign_in.linked_identities import unlink_user_identity
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens.signing_key_lists import rotate_signing_key
from app.operations.users.app_roles import remove_app_role
from app.operations.users.deletion import delete_user
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.groups import delete_group, remove_member
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from app.rules.clients.client_types import BLOCKED, REVIEW
from app.rules.errors import DomainError, InvalidInput, NotFound, OrganizationMoving
from app.rules.identifiers import parse_client_id, parse_public_id
from app.rules.sign_in.identity_providers import DISABLED as DISABLED_PROVIDER

RESTORE = "restore"
# Fields of a client that may have taken its access away.
_ACCESS_FIELDS = frozenset({"status", "approval"})
_ID_BATCH = 500


class ExportedEvent(Struct, frozen=True):
    """An event of an audit export.

    ``organization`` is the slug of the organization whose log has the event, ``before`` and ``after`` are the changed
    fields.
    """

    id: str
    organization: str
    at: str
    action: str
    target: str
    actor: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def affected_organization(self) -> str:
        """The slug of the organization that the event changed: root's log has the deletions of others."""
        return self.target if self.action.startswith("organization.") else self.organization

    @property
    def words(self) -> str:
        """The event in one line."""
        return f"{self.organization} {self.at} {self.action} {self.target}"


class EndedAgain(Struct):
    """Events of an audit export, in words.

    ``ended_again`` were applied. ``failed`` could not be, with the reason. ``not_in_backup`` ended what was created
    after the backup, so there is nothing to end. ``to_review`` only an administrator can apply.
    """

    ended_again: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    not_in_backup: list[str] = field(default_factory=list)
    to_review: list[str] = field(default_factory=list)


def read_export(lines: Iterable[str]) -> Iterable[ExportedEvent]:
    """Iterate over the events of an audit export that end something. Raises InvalidInput."""
    number = 0
    try:
        for line in lines:
            number += 1
            event = json.loads(line) if line.strip() else None
            if event is not None and event["action"] in RELEVANT_ACTIONS:
                yield _read_event(event)
    except UnicodeDecodeError as error:
        # It is raised by the file, which reads far ahead of the line.
        raise InvalidInput(
            "The audit export is not UTF-8. Export it with GET /audit-events/export."
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"Line {number} of the audit export is not an event. Export it with GET /audit-events/export."
        ) from error


def _read_event(event: Mapping[str, Any]) -> ExportedEvent:
    found = ExportedEvent(
        id=event["id"],
        organization=event["organization_id"],
        at=event["occurred_at"],
        action=event["action"],
        target=event["target"]["id"] or "",
        actor=event["actor"]["id"] or "",
        before=event["before"] or {},
        after=event["after"] or {},
    )
    texts = (found.id, found.organization, found.at, found.action, found.target, found.actor)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is expected")
    if not isinstance(found.before, dict) or not isinstance(found.after, dict):
        raise TypeError("an object is expected")
    return found


def leaves_suspended(events: Iterable[ExportedEvent], slug: str) -> bool:
    """Return whether the last of these events that suspends, resumes or restores the organization suspends it."""
    actions = {"organization.suspended", "organization.resumed", "organization.restored"}
    own = [event for event in events if event.affected_organization == slug and event.action in actions]
    return bool(own) and _suspends(max(own, key=lambda event: event.at))


def _suspends(event: ExportedEvent) -> bool:
    """Return whether the event suspends an organization, maybe one that it restores."""
    is_restored = event.action == "organization.restored"
    return event.action == "organization.suspended" or (
        is_restored and event.after.get("status") == SUSPENDED
    )


def end_again(events: list[ExportedEvent], result: EndedAgain) -> None:
    """End again what ended after the backup and was not undone later, and add each event to the ``result``."""
    ended: dict[tuple[str, str, str], ExportedEvent] = {}
    for event in sorted(_without_known(events), key=lambda event: event.at):
        subject = _subject_of(event)
        key = (event.affected_organization, event.action, subject)
        if _is_to_review(event):
            result.to_review.append(event.words)
        for cancelled in _CANCELS.get(event.action, ()):
            ended.pop((event.affected_organization, cancelled, subject), None)
        if event.action not in _HANDLERS or (
            event.action == "organization.restored" and not _suspends(event)
        ):
            continue
        if key in ended:
            ended[key] = replace(event, after={**ended[key].after, **event.after})
        else:
            ended[key] = event
    for event in ended.values():
        try:
            organization = get_organization_by_slug(event.affected_organization)
            if _HANDLERS[event.action](Actor.system(organization.id, RESTORE), event) is not False:
                result.ended_again.append(event.words)
        except NotFound:
            if _is_deleted(event.affected_organization):
                result.failed.append(f"{event.words}: the organization is deleted in this backup")
            else:
                result.not_in_backup.append(event.words)
        except DomainError as error:
            result.failed.append(f"{event.words}: {error.description}")
        except (KeyError, TypeError, ValueError):
            result.failed.append(f"{event.words}: the event lacks what it needs")


@read
def _is_deleted(slug: str) -> bool:
    return db.session.scalar(select(Organization.status).where(Organization.slug == slug)) == DELETED


@read
def _without_known(events: list[ExportedEvent]) -> list[ExportedEvent]:
    """Leave out the events that the backup has."""
    known: set[UUID] = set()
    ids = {event.id: parse_public_id("evt", event.id) for event in events}
    for slug in {event.organization for event in events}:
        try:
            organization_id = get_organization_by_slug(slug).id
        except (NotFound, OrganizationMoving):
            continue
        own = [row_id for event in events if event.organization == slug and (row_id := ids[event.id])]
        for start in range(0, len(own), _ID_BATCH):
            known.update(
                db.session.scalars(
                    select(AuditEvent.id).where(
                        AuditEvent.organization_id == organization_id,
                        AuditEvent.id.in_(own[start : start + _ID_BATCH]),
                    )
                )
            )
    return [event for event in events if ids[event.id] not in known]


def _subject_of(event: ExportedEvent) -> str:
    """Return what the event is about. Withdrawals, members and roles have the same client or group as their target."""
    if event.action == "consent.withdrawn":
        return " ".join(_user_and_client(event))
    if event.action.startswith(("group.member_", "app_role.")):
        holder = {**event.before, **event.after}
        return " ".join([event.target, *(str(holder.get(name)) for name in ("role", "user", "group"))])
    return event.target


def _user_and_client(event: ExportedEvent) -> tuple[str, str]:
    """Return whose consent was withdrawn, and the client's ID.

    The target is the client if users withdrew it themselves, and also in exports of 0.1.0, which name the user in
    ``before`` if an administrator did.
    """
    if "client_id" in event.before:
        return event.target, str(event.before["client_id"])
    return str(event.before.get("user") or event.actor), event.target


def _revoke_secret(actor: Actor, event: ExportedEvent) -> None:
    client_id, revokes_tokens = event.after["client_id"], bool(event.after.get("tokens_revoked"))
    revoke_credentials(actor, client_id, credential_id=event.target, revoke_tokens=revokes_tokens)


@transaction
def _retire_secret(actor: Actor, event: ExportedEvent) -> bool:
    """Let a secret end when it was scheduled to end, also if that is past."""
    ends = event.after["expires_at"] and datetime.fromisoformat(event.after["expires_at"])
    if ends is None:
        return False
    touch_organization(actor.organization_id)
    own = (
        Credential.organization_id == actor.organization_id,
        Credential.id == parse_public_id("sec", event.target),
    )
    changed = count_changed(
        update(Credential)
        .where(*own, or_(Credential.expires_at.is_(None), Credential.expires_at > ends))
        .values(expires_at=ends)
    )
    if changed:
        audit.record(
            actor,
            "credential.retired",
            "credential",
            event.target,
            after={name: event.after.get(name) for name in ("client_id", "expires_at")},
        )
    elif db.session.scalar(select(Credential.id).where(*own)) is None:
        raise NotFound("There is no such secret.")
    return bool(changed)


def _is_to_review(event: ExportedEvent) -> bool:
    """Return whether an administrator has to decide about the change."""
    return (
        event.action in _TO_REVIEW
        or (event.action == "client.updated" and not event.after.keys() <= _ACCESS_FIELDS)
        or (event.action == "identity_provider.updated" and event.after.keys() != {"status"})
        or (event.action == "user.updated" and "email" in event.after)
    )


def _block_client(actor: Actor, event: ExportedEvent) -> bool:
    """Disable or block the client, unless that was undone later."""
    changed = {name: event.after.get(name) for name in _ACCESS_FIELDS}
    ended = {name: value for name, value in changed.items() if value in {DISABLED, BLOCKED, REVIEW}}
    return bool(ended and update_client(actor, event.target, ended).changed)


def _disable_provider(actor: Actor, event: ExportedEvent) -> bool:
    """Disable the identity provider, unless that was undone later."""
    if event.after.get("status") != DISABLED_PROVIDER:
        return False
    return bool(update_identity_provider(actor, event.target, {"status": DISABLED_PROVIDER})[1])


def _withdraw_access(actor: Actor, event: ExportedEvent) -> bool:
    """Withdraw the access of a client to an API, also if it was given again later, possibly with fewer scopes."""
    try:
        withdraw_access(actor, event.target, {"message": event.after.get("message")})
    except AlreadyDecided:
        return False
    return True


@transaction
def _clear_password(actor: Actor, event: ExportedEvent) -> None:
    """Delete the password that the user has changed since: they choose a new one with a link."""
    changed = count_changed(
        update(User)
        .where(User.organization_id == actor.organization_id, User.id == parse_public_id("usr", event.target))
        .values(password_hash=None, password_scheme=None, password_changed_at=clock.now())
    )
    if changed != 1:
        raise NotFound("There is no such user.")
    audit.record(actor, "user.password_cleared", "user", event.target)


@transaction
def _withdraw_consent(actor: Actor, event: ExportedEvent) -> None:
    user, client_id = _user_and_client(event)
    client = parse_client_id(client_id)
    consent = db.session.scalar(
        select(Consent).where(
            Consent.organization_id == actor.organization_id,
            Consent.user_id == parse_public_id("usr", user),
            Consent.client_id == (client and client[1]),
        )
    )
    if consent is None:
        raise NotFound("There is no such consent.")
    revoke_consent(actor, consent)


@transaction
def _remove_passkey(actor: Actor, event: ExportedEvent) -> None:
    passkey = str(event.before["passkey"])
    row_id = parse_public_id("pky", passkey)
    if row_id is None:
        raise ValueError("not the ID of a passkey")
    removed = count_changed(
        delete(Passkey).where(Passkey.organization_id == actor.organization_id, Passkey.id == row_id)
    )
    if removed != 1:
        raise NotFound("There is no such passkey.")
    audit.record(
        actor,
        "passkey.removed",
        "user",
        event.target,
        before={"passkey": passkey, "name": event.before.get("name")},
    )


def _replace_keys(actor: Actor, event: ExportedEvent) -> bool:
    """Replace a signing key that was withdrawn because it may have leaked; a regular rotation is repeated in time."""
    if not event.after.get("emergency"):
        return False
    rotate_signing_key(actor, event.organization, {"algorithm": event.after["algorithm"], "emergency": True})
    return True


def _suspend_organization(_: Actor, event: ExportedEvent) -> bool:
    return bool(update_organization(_root(), event.target, {"status": SUSPENDED}).changed)


def _root() -> Actor:
    return Actor.system(get_root_organization().id, RESTORE)


# What ends again, by the action. One that returns False has changed nothing.
_HANDLERS: Mapping[str, Callable[[Actor, ExportedEvent], object]] = {
    "client_access.withdrawn": _withdraw_access,
    "credential.retired": _retire_secret,
    "credential.revoked": _revoke_secret,
    "credential.tokens_revoked": _revoke_secret,
    "client.updated": _block_client,
    "client.deleted": lambda actor, event: delete_client(actor, event.target),
    "user.disabled": lambda actor, event: update_user(actor, event.target, {"status": "disabled"}),
    "user.deleted": lambda actor, event: delete_user(actor, event.target),
    "user.password_changed": _clear_password,
    "user.password_reset": _clear_password,
    "consent.withdrawn": _withdraw_consent,
    "administrator.removed": lambda actor, event: remove_administrator(
        actor, event.organization, event.target
    ),
    "app_role.removed": lambda actor, event: remove_app_role(
        actor, event.target, str(event.before["assignment"])
    ),
    "group.deleted": lambda actor, event: delete_group(actor, event.organization, event.target),
    "group.member_removed": lambda actor, event: remove_member(
        actor, event.organization, event.target, str(event.before["user"])
    ),
    "passkey.removed": _remove_passkey,
    "identity.unlinked": lambda actor, event: unlink_user_identity(
        actor, event.target, str(event.before["identity"])
    ),
    "identity_provider.updated": _disable_provider,
    "identity_provider.deleted": lambda actor, event: delete_identity_provider(actor, event.target),
    "second_factors.reset": lambda actor, event: reset_user_factors(actor, event.target),
    "signing_key.removed": _replace_keys,
    "organization.suspended": _suspend_organization,
    "organization.restored": _suspend_organization,
    "organization.deleted": lambda _, event: delete_organization(_root(), event.target),
}
_CANCELS: Mapping[str, tuple[str, ...]] = {
    "app_role.assigned": ("app_role.removed",),
    "group.member_added": ("group.member_removed",),
    "credential.kept": ("credential.retired",),
    "user.enabled": ("user.disabled",),
    "organization.resumed": ("organization.suspended", "organization.restored"),
    "organization.restored": ("organization.deleted", "organization.suspended"),
}
# Changes that give nothing back by themselves, but whose old values apply again.
_TO_REVIEW = frozenset(
    (
        "settings.updated", "resource.updated", "resource.deleted", "scope.deleted", "scope.updated",
        "user.email_changed", "second_factor.removed", "second_factors.ended", "webhook.updated", "webhook.deleted",
        "webhook.secret_rotated", "secret.leak_reported", "instance.ceilings_updated", "group.updated",
    )
)  # fmt: skip
RELEVANT_ACTIONS = _HANDLERS.keys() | _CANCELS.keys() | _TO_REVIEW | {"user.updated"}
"""Audit actions that a restore applies again or lists. All others take nothing away, or end by the cutoffs."""
