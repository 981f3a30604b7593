"""Users by id and email address. Accounts are separate per organization, even with the same email address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, bindparam, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.user import ACTIVE, DELETED, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import clock
from app.operations.store.rows import count_rows
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.rules.errors import Conflict, FieldError, InvalidInput, NotFound
from app.rules.fields import text_problem
from app.rules.identifiers import HasPublicId, new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email, is_email
from app.rules.shapes import Shape, Text, described
from app.rules.tokens.claims import Profile
from app.rules.users.profile import MAX_NAME_LENGTH

MAX_PASSWORD_SCHEMES = 3
# The columns of a snapshot, in the order of its fields. Queries that already join the user read them too, and
# ``snapshot_of`` makes the snapshot: each token with claims of the user needs one.
USER_COLUMNS = (
    User.organization_id, User.id, User.email, User.email_canonical, User.email_verified, User.name, User.profile,
    User.attributes, User.status, User.password_hash, User.password_changed_at, User.created_at, User.updated_at,
    User.last_sign_in_at, User.version,
)  # fmt: skip
_FIND = CompiledQuery(
    select(*USER_COLUMNS).where(
        has_key(User, bindparam("of_organization"), bindparam("of_user")), User.status != DELETED
    )
)

_NEXT_SCHEME = CompiledQuery(
    select(User.password_scheme)
    .where(
        User.organization_id == bindparam("organization_id"),
        User.password_scheme > bindparam("before", type_=User.password_scheme.type),
    )
    .order_by(User.password_scheme)
    .limit(1)
)


class SentUser(Shape):
    """A user whom a request names. Send either `user_id` or `email`."""

    user_id: Annotated[Annotated[str, Text(64)] | None, described("The user. Send this or `email`.")] = None
    email: Annotated[
        Annotated[str, Text(254, min_length=3)] | None,
        described("The email address of the user. Send this or `user_id`."),
    ] = None


class UserSnapshot(HasPublicId, Struct, frozen=True):
    """A user, without the password hash."""

    id_prefix = "usr"  # Also the subject of tokens.
    organization_id: str
    id: UUID
    email: str
    email_canonical: str
    email_verified: bool
    name: str
    profile: Mapping[str, Any]
    attributes: Mapping[str, Any]
    status: str
    has_password: bool
    password_changed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_sign_in_at: datetime | None
    version: int

    @property
    def is_active(self) -> bool:
        """Return whether the account is not disabled."""
        return self.status == ACTIVE

    @property
    def claims(self) -> Profile:
        """The user's OpenID Connect profile.

        ``rules/tokens/claims`` decides which scope releases which claim.
        """
        known = {name: value for name, value in self.profile.items() if name in Profile.__struct_fields__}
        return Profile(
            **{
                **known,
                "sub": self.public_id,
                "email": self.email,
                "email_verified": self.email_verified,
                "name": self.name,
                # Phone numbers are not verified yet, whatever the profile says (OI-5).
                "phone_number_verified": False,
                "updated_at": self.updated_at,
            }
        )


@transaction
def create_user(
    organization_id: str,
    *,
    email: str,
    name: str = "",
    password_hash: str | None = None,
    email_verified: bool = False,
    made_unproven: bool = False,
    profile: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> UUID:
    """Create a user in the organization and return the id.

    ``made_unproven`` marks an account whose email address is not verified. What was set up in it is removed
    when the address is verified for the first time. The caller records the audit event. Raises InvalidInput
    for an invalid email address or name, and Conflict if a user with this email address exists or the organization
    has as many users as it may (``too_many_users``).
    """
    canonical = canonical_email(email)
    if canonical is None or not is_email(email):
        raise InvalidInput("Enter a valid email address.", field="email", code="invalid_email")
    problem = text_problem(name, max_length=MAX_NAME_LENGTH) if name else None
    if problem is not None:
        raise InvalidInput(problem.message, field="name", code=problem.code)
    if find_user_by_email(organization_id, email) is not None:
        raise email_taken_error()
    require_free_place(organization_id)
    now = clock.now()
    user_id: UUID = current_unit_of_work().stable_value(f"user {canonical}", new_id)
    user = User(
        organization_id=organization_id,
        id=user_id,
        email=email.strip(),
        email_canonical=canonical,
        email_verified=email_verified,
        made_unproven=made_unproven,
        name=name,
        profile=dict(profile or {}),
        attributes=dict(attributes or {}),
        password_hash=password_hash,
        password_changed_at=now if password_hash else None,
        created_at=now,
        updated_at=now,
    )
    with savepoint(on_duplicate=email_taken_error()):
        db.session.add(user)
    return user_id


def mark_user_verified(organization_id: str, user_id: UUID) -> bool:
    """Mark the account as verified, and return whether this was the first time.

    What is set up in it from now on stays when its email address is verified again. Call it in the transaction that
    records the audit event.
    """
    first = count_changed(
        update(User)
        .where(has_key(User, organization_id, user_id), User.made_unproven.is_(True))
        .values(made_unproven=False)
    )
    return first == 1


def update_user_row(
    organization_id: str, user_id: UUID, *conditions: ColumnElement[bool], **columns: Any
) -> bool:
    """Update columns of the user's row, its time and its version, and return whether the conditions were met.

    Call it in the transaction that records the audit event.
    """
    changed = count_changed(
        update(User)
        .where(has_key(User, organization_id, user_id), *conditions)
        .values(**columns, updated_at=clock.now(), version=User.version + 1)
    )
    db.session.expire_all()
    return changed == 1


def parse_user_id(text: str) -> UUID:
    """Return the id behind ``usr_…``. Raises NotFound for anything else."""
    found = parse_public_id("usr", text)
    if found is None:
        raise NotFound("There is no such user.")
    return found


def get_user(organization_id: str, user_id: UUID) -> UserSnapshot:
    """Return the user. Raises NotFound for a deleted user and one of another organization, too."""
    row = _FIND.first(of_organization=organization_id, of_user=user_id)
    if row is None:
        raise NotFound("There is no such user.")
    return snapshot_of(row)


def is_active_user(organization_id: str, user_id: UUID) -> bool:
    """Return whether the user exists in the organization and is not disabled."""
    row = _FIND.first(of_organization=organization_id, of_user=user_id)
    return row is not None and snapshot_of(row).is_active


def hold_user(organization_id: str, user_id: UUID) -> int | None:
    """Lock the user's row until the current transaction ends, and return its version, or None if there is none.

    Call it before a transaction writes several rows of the user (sessions, second factors, links): of two that write
    them in different orders, the second one then waits.
    """
    version: int | None = db.session.scalar(
        select(User.version).where(has_key(User, organization_id, user_id)).with_for_update()
    )
    return version


@read
def find_user_by_email(organization_id: str, email: str) -> UserSnapshot | None:
    """Return the user with this email address in any spelling, or None."""
    canonical = canonical_email(email)
    if canonical is None:
        return None
    row = db.session.execute(
        select(*USER_COLUMNS).where(
            User.organization_id == organization_id, User.email_canonical == canonical
        )
    ).first()
    return None if row is None else snapshot_of(row)


def list_password_schemes(organization_id: str) -> tuple[str, ...]:
    """List the kinds and costs of imported password hashes that users of the organization still have.

    Returns at most MAX_PASSWORD_SCHEMES. Each costs one index look-up, however many users there are.
    """
    found: list[str] = []
    while len(found) < MAX_PASSWORD_SCHEMES:
        row = _NEXT_SCHEME.first(organization_id=organization_id, before=found[-1] if found else "")
        if row is None:
            break
        found.append(row.password_scheme)
    return tuple(found)


def count_free_places(organization_id: str) -> int | None:
    """Return how many users the organization may still create, or None without a limit.

    Deleted users do not count. Concurrent calls may exceed the limit slightly.
    """
    limit: int | None = get_organization_by_id(organization_id).settings["limits"]["max_users"]
    if limit is None:
        return None
    existing = select(User.id).where(User.organization_id == organization_id, User.status != DELETED)
    return max(0, limit - count_rows(existing, limit))


@read
def require_free_place(organization_id: str) -> None:
    """Require that the organization may create another user. Raises Conflict (``too_many_users``)."""
    if count_free_places(organization_id) == 0:
        raise too_many_users_error(organization_id)


def too_many_users_error(organization_id: str) -> Conflict:
    """Return the error for a user beyond the organization's limit."""
    limit = get_organization_by_id(organization_id).settings["limits"]["max_users"]
    return Conflict(
        lazy_gettext(
            "This organization has at most %(limit)s users. An administrator of the instance can change that.",
            limit=limit,
        ),
        code="too_many_users",
    )


def email_taken_error() -> Conflict:
    """Return the error for an email address that another user of the organization has."""
    return Conflict("There is already a user with this email address.", field="email", code="email_taken")


def find_sent_user(organization_id: str, fields: Mapping[str, Any], *, shared: bool = False) -> UserSnapshot:
    """Return the user that a request names, locked until the transaction ends, so that they are not deleted meanwhile.

    ``fields`` have the shape of ``SentUser``. With ``shared`` others may hold the user too. Raises InvalidInput naming
    the field, and Conflict for an email address that someone registered with and has not verified.
    """
    if (fields.get("user_id") is None) == (fields.get("email") is None):
        raise InvalidInput.of([FieldError("user_id", "required", "Send either user_id or email.")])
    name = "user_id" if fields.get("user_id") is not None else "email"
    if name == "user_id":
        row_id = parse_public_id("usr", fields[name])
    else:
        found = find_user_by_email(organization_id, fields[name])
        row_id = found.id if found is not None else None
    row = None
    if row_id is not None:
        columns = select(User.made_unproven, *USER_COLUMNS)
        statement = columns.where(has_key(User, organization_id, row_id)).with_for_update(read=shared)
        row = db.session.execute(statement).first()
    if row is None or row.status == DELETED:
        raise InvalidInput("There is no such user.", field=name, code="unknown_user")
    if name == "email" and row.made_unproven:
        # Someone who registered with another person's email must not get what is meant for its owner.
        raise unverified_email_error(row.id)
    return snapshot_of(row)


def unverified_email_error(user_id: UUID) -> Conflict:
    """Return the error for an email address that names a user who has not verified it (OI-5)."""
    return Conflict(
        lazy_gettext(
            "The user with this email address has not verified it. If you know that it is theirs, send their"
            " user_id instead: %(user_id)s.",
            user_id=public_id("usr", user_id),
        ),
        field="email",
        code="email_unverified",
    )


def snapshot_of(values: Sequence[Any]) -> UserSnapshot:
    """Return the values of ``USER_COLUMNS``, which may be the last ones of a row, as a snapshot."""
    (
        organization_id, user_id, email, email_canonical, email_verified, name, profile, attributes, status,
        password_hash, password_changed_at, created_at, updated_at, last_sign_in_at, version,
    ) = values[-len(USER_COLUMNS) :]  # fmt: skip
    return UserSnapshot(
        organization_id, user_id, email, email_canonical, email_verified, name, profile, attributes or {}, status,
        password_hash is not None, password_changed_at, created_at, updated_at, last_sign_in_at, version,
    )  # fmt: skip
