"""Users: the people of one organization. The same e-mail in another organization is somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.user import ACTIVE, DELETED, User
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit, read, transaction
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.fields import text_problem
from app.rules.identifiers import new_id, public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.tokens.claims import Profile

LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class UserView:
    """A user, without the password's hash."""

    organization_id: str
    id: UUID
    email: str
    email_canonical: str
    email_verified: bool
    name: str
    profile: Mapping[str, Any]
    status: str
    has_password: bool
    password_changed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_sign_in_at: datetime | None
    version: int

    @property
    def public_id(self) -> str:
        """``usr_…``: the subject of tokens too."""
        return public_id("usr", self.id)

    @property
    def is_active(self) -> bool:
        """Not disabled."""
        return self.status == ACTIVE

    @property
    def claims(self) -> Profile:
        """The user as OpenID Connect knows people; ``rules/tokens/claims`` says which scope releases what."""
        known = {name: value for name, value in self.profile.items() if name in Profile.__dataclass_fields__}
        return Profile(
            **{
                **known,
                "sub": self.public_id,
                "email": self.email,
                "email_verified": self.email_verified,
                "name": self.name,
                # No number is proven yet, whatever a profile says (OI-5).
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
) -> UUID:
    """The user stands in the organization; part of the invitation, set-up or import that audits it.

    ``made_unproven`` says that nobody vouched for whoever typed the address (``addresses.first_proof``).
    Raises InvalidInput for an address that can be none or a name that misleads,
    Conflict when the organization has a user with it.
    """
    canonical = canonical_email(email)
    if canonical is None:
        raise InvalidInput("This is not an e-mail address.", field="email", code="invalid_email")
    if name:
        _require_name(name)
    if find_user_by_email(organization_id, email) is not None:
        raise address_taken()
    now = clock.now()
    user_id: UUID = current_unit().once(f"user {canonical}", new_id)
    user = User(
        organization_id=organization_id,
        id=user_id,
        email=email.strip(),
        email_canonical=canonical,
        email_verified=email_verified,
        made_unproven=made_unproven,
        name=name,
        profile=dict(profile or {}),
        password_hash=password_hash,
        password_changed_at=now if password_hash else None,
        created_at=now,
        updated_at=now,
    )
    try:
        with db.session.begin_nested():
            db.session.add(user)
    except IntegrityError as duplicate:
        raise address_taken() from duplicate
    return user_id


@transaction
def vouch_for_user(organization_id: str, user_id: UUID) -> None:
    """Somebody vouched for the user: what is set up in the account outlasts the first proof of its address.

    Part of the change that audits it.
    """
    count_changed(
        update(User)
        .where(User.organization_id == organization_id, User.id == user_id, User.made_unproven.is_(True))
        .values(made_unproven=False)
    )


@read
def get_user(organization_id: str, user_id: UUID) -> UserView:
    """The user. Raises NotFound, for another organization's user and a deleted one too."""
    user = db.session.get(User, (organization_id, user_id))
    if user is None or user.status == DELETED:
        raise NotFound("There is no such user.")
    return view_of(user)


@read
def find_user_by_email(organization_id: str, email: str) -> UserView | None:
    """The user with the address in any spelling, or None."""
    canonical = canonical_email(email)
    if canonical is None:
        return None
    user = db.session.scalar(
        select(User).where(User.organization_id == organization_id, User.email_canonical == canonical)
    )
    return None if user is None else view_of(user)


MOST_SCHEMES = 3


@read
def password_schemes(organization_id: str) -> tuple[str, ...]:
    """The kinds and costs of the other systems' hashes that people of the organization still have.

    At most MOST_SCHEMES: each is one step along the index, however many people there are.
    """
    found: list[str] = []
    while len(found) < MOST_SCHEMES:
        following = db.session.scalar(
            select(User.password_scheme)
            .where(
                User.organization_id == organization_id, User.password_scheme > (found[-1] if found else "")
            )
            .order_by(User.password_scheme)
            .limit(1)
        )
        if following is None:
            break
        found.append(following)
    return tuple(found)


def _require_name(name: str) -> None:
    problem = text_problem(name, longest=LONGEST_NAME)
    if problem is not None:
        raise InvalidInput(problem.message, field="name", code=problem.code)


def address_taken() -> Conflict:
    """The refusal of an address that another user of the organization has."""
    return Conflict("There is a user with this e-mail address already.", field="email", code="email_taken")


def view_of(user: User) -> UserView:
    """The row, without the password's hash."""
    return UserView(
        organization_id=user.organization_id,
        id=user.id,
        email=user.email,
        email_canonical=user.email_canonical,
        email_verified=user.email_verified,
        name=user.name,
        profile=user.profile,
        status=user.status,
        has_password=user.password_hash is not None,
        password_changed_at=user.password_changed_at,
        created_at=user.created_at,
        updated_at=user.updated_at,
        last_sign_in_at=user.last_sign_in_at,
        version=user.version,
    )
