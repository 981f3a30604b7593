"""One's own e-mail address: proven by a link that goes to it, and changed by the proof of the new one.

Nothing is said of whether somebody else has the address: whoever has it is told by mail, and whoever asked learns
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.user import ACTIVE, AccountLink, User
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.users import find_user_by_email
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail import letters
from app.operations.mail.notices import Notice, notify_user
from app.operations.sign_in.reauthentication import require_active_session, require_fresh_sign_in
from app.operations.sign_in.second_factors import count_factors
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import audit, clock, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key
from app.operations.store.transactions import count_changed, is_duplicate_key, read, transaction
from app.operations.users import account_links
from app.operations.users.account_links import AccountLinkRecord
from app.operations.users.email_verification import revoke_unverified_state_elsewhere
from app.operations.users.own_profile import can_change_profile
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.lockout import Lockout
from app.rules.token_values import EMAIL_VERIFICATION
from app.rules.users.sign_up import is_domain_allowed


def on_email_changed(
    actor: Actor, user_id: UUID, *, old: str, new: str, keep: UUID | None = None
) -> dict[str, int]:
    """Every sign-in but ``keep`` and what apps could refresh have ended (SS-6), and the old address is told.

    Part of the change that audits it; returns the counts for its event.
    """
    # The old address may be somebody else's by now, and a link that was sent there must not choose the password.
    account_links.revoke_links(actor.organization_id, user_id)
    ended = end_sessions_of_user(actor.organization_id, user_id, keep=keep)
    grants = revoke_grants_of_user(actor, user_id, reason="email_changed")
    by_themselves = actor.user_id == user_id
    notice: Notice = "email_changed" if by_themselves else "email_changed_by_administrator"
    notify_user(actor, user_id, notice, to=old, new=new)
    return {"ended_sessions": ended, "ended_grants": grants}


VERIFICATION_LINK_LIFETIME = timedelta(days=1)
MAX_EMAILS_PER_HOUR = 3
"""Mails that one person, and everybody together, can have sent to one mailbox."""
_HOURLY = Lockout(MAX_EMAILS_PER_HOUR, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


class EmailVerificationEnded(Conflict):
    """It was used, replaced by a newer one, has expired, or the account is another by now."""

    code = "proof_ended"

    def __init__(self) -> None:
        super().__init__(
            "This link was used already, has expired, or a newer one was sent. Ask for a new one."
        )


class WrongAccount(Forbidden):
    """The link belongs to an account that the one who opens it is not signed in to.

    Whoever reads a mailbox would otherwise lend it to the account of somebody who has asked for it.
    """

    code = "another_account"

    def __init__(self) -> None:
        super().__init__("This link is for another account. Sign in to that one, and open the link again.")


@dataclass(frozen=True, slots=True)
class EmailVerificationRecord:
    """Which address of whose a link proves; ``is_change`` says that the account has another one now."""

    address: str
    email: str
    is_change: bool
    link: AccountLinkRecord


@dataclass(frozen=True, slots=True)
class EmailVerificationResult:
    """What was proven; ``has_ended`` says that something from before the first proof is no more."""

    proof: EmailVerificationRecord
    has_ended: bool


def can_verify_emails() -> bool:
    """Whether there is a mail server: without one nobody can prove an address."""
    return letters.is_possible()


def request_email_verification(actor: Actor, email: str) -> None:
    """A link goes to the address, with which it becomes, or is proven to be, that of the actor's account.

    Asks for a fresh sign-in. Nothing is told of whether somebody else has it. Raises Forbidden where members may not
    change their profile, or the organization does not take the domain, InvalidInput naming ``email``, Conflict without
    a mail server, FreshSignInRequired, TooManyRequests. Audit: ``user.email_proof_requested``.
    """
    if actor.user_id is None or actor.organization_id != actor.home_organization_id:
        raise Forbidden("Only a person has an address.")
    if not letters.is_possible():
        raise Conflict(
            "No mail server is set up here, so no address can be confirmed.", code="no_mail_server"
        )
    require_fresh_sign_in(actor)
    organization = get_organization_by_id(actor.organization_id)
    canonical = canonical_email(email)
    if canonical is None:
        raise InvalidInput("This is not an e-mail address.", field="email", code="invalid_email")
    _require_allowed(actor, organization, actor.user_id, email, canonical)
    for bucket in (
        bucket_key("address proof", str(actor.user_id)),
        bucket_key("address proof", canonical),
    ):
        rate_limits.require_attempt_allowed(
            organization.id,
            "Too many links were asked for. Look into the mailbox, or try again in an hour.",
            Limit(bucket, _HOURLY),
        )
    _send(actor, organization, actor.user_id, email.strip(), canonical)


@read
def _require_allowed(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, email: str, canonical: str
) -> None:
    row = db.session.execute(
        select(User.email_canonical, User.email_verified).where(
            User.organization_id == organization.id, User.id == user_id
        )
    ).one()
    if canonical == row.email_canonical:
        if row.email_verified:
            raise InvalidInput("This is your address, and it is confirmed.", field="email", code="unchanged")
        return
    if not can_change_profile(actor):
        raise Forbidden("Your organization does not let members change their address. Ask an administrator.")
    if not is_domain_allowed(email, organization.settings) and not actor.has_permission("users:write"):
        raise InvalidInput(
            "This organization takes other domains than this one.", field="email", code="domain_not_allowed"
        )


@transaction
def _send(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, email: str, canonical: str
) -> None:
    home = f"{organization.base_url}/organizations/{organization.slug}"
    holder = find_user_by_email(organization.id, email)
    if holder is not None and holder.id != user_id:
        values = {"email": email, "link": f"{home}/login", "forgot": f"{home}/forgot"}
        letters.send(organization, email, "account_exists", values)
        # As a new link does: by whether the one before still works, the asker would learn of the account (EN-1).
        account_links.revoke_links(organization.id, user_id, EMAIL_VERIFICATION)
    else:
        token, expires_at = account_links.create_link(
            organization.id,
            user_id,
            EMAIL_VERIFICATION,
            bound_to=_bound(organization.id, user_id),
            life=VERIFICATION_LINK_LIFETIME,
            is_mailed=True,
            address=email,
        )
        values = {
            "email": email,
            "link": f"{home}/confirm-address/{token}",
            "until": expires_at.isoformat(),
        }
        letters.send(organization, email, "confirm_address", values, until=expires_at)
    audit.record(
        actor,
        "user.email_proof_requested",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"email": canonical},
    )


@read
def find_email_verification(actor: Actor, token: str) -> EmailVerificationRecord | None:
    """What the link proves of the actor's account, or None when it has ended or the account is another by now.

    Raises AnotherAccount.
    """
    organization = get_organization_by_id(actor.organization_id)
    life = int(VERIFICATION_LINK_LIFETIME.total_seconds())
    link = account_links.find_link(organization.id, token, EMAIL_VERIFICATION, life_seconds=life)
    if link is None or not organization.is_active:
        return None
    if link.user_id != actor.user_id:
        raise WrongAccount
    row = db.session.execute(
        select(User.email, User.email_canonical, AccountLink.address)
        .join(
            AccountLink,
            (AccountLink.organization_id == User.organization_id) & (AccountLink.user_id == User.id),
        )
        .where(
            User.organization_id == organization.id,
            User.id == link.user_id,
            User.status == ACTIVE,
            AccountLink.purpose == EMAIL_VERIFICATION,
        )
    ).first()
    if row is None or row.address is None or not link.is_bound_to(_bound(organization.id, link.user_id)):
        return None
    return EmailVerificationRecord(
        row.address, row.email, canonical_email(row.address) != row.email_canonical, link
    )


@transaction
def verify_email(actor: Actor, token: str, *, known: str = "") -> EmailVerificationResult:
    """The address is the account's, and verified: the actor, whose account it is, reads its mailbox (OI-5).

    Where it is another one than before, every other sign-in and what apps could refresh have ended (SS-6), and the old
    address is told. Where it is the first proof of an account that nobody vouched for, what others set up in it has
    ended (``first_proof``). Of an address that was there already the person is told by mail, with the second factors
    that there are. ``known`` is the value of the cookie of known browsers. Raises ProofEnded, also when somebody else
    has the address by now, AnotherAccount, and FreshSignInRequired when the sign-in has ended meanwhile. Audit:
    ``user.email_changed`` or ``user.email_verified``, and that of ``end_elsewhere_from_before``.
    """
    proof = find_email_verification(actor, token)
    if proof is None or not account_links.consume_link(proof.link):
        raise EmailVerificationEnded
    organization = get_organization_by_id(actor.organization_id)
    user_id = proof.link.user_id
    _store(organization.id, user_id, proof)
    from_before = revoke_unverified_state_elsewhere(actor, user_id, known=known)
    if not proof.is_change:
        audit.record(
            actor,
            "user.email_verified",
            target_type="user",
            target_id=public_id("usr", user_id),
            after={"email": proof.address, **from_before},
        )
        left = count_factors(organization.id, user_id)
        notify_user(actor, user_id, "address_confirmed", **left.told("left"))
        require_active_session(actor)
        return EmailVerificationResult(proof, bool(from_before))
    ended = on_email_changed(actor, user_id, old=proof.email, new=proof.address, keep=actor.session_id)
    audit.record(
        actor,
        "user.email_changed",
        target_type="user",
        target_id=public_id("usr", user_id),
        before={"email": proof.email},
        after={"email": proof.address, **from_before, **ended},
    )
    require_active_session(actor)
    return EmailVerificationResult(proof, bool(from_before))


def _store(organization_id: str, user_id: UUID, proof: EmailVerificationRecord) -> None:
    try:
        with db.session.begin_nested():
            stored = count_changed(
                update(User)
                .where(
                    User.organization_id == organization_id,
                    User.id == user_id,
                    User.status == ACTIVE,
                    User.email_canonical == canonical_email(proof.email),
                )
                .values(
                    email=proof.address,
                    email_canonical=canonical_email(proof.address),
                    email_verified=True,
                    updated_at=clock.now(),
                    version=User.version + 1,
                )
            )
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise EmailVerificationEnded from error
    if stored != 1:
        raise EmailVerificationEnded
    db.session.expire_all()


def _bound(organization_id: str, user_id: UUID) -> str:
    """What must stand until the link is used: the password and the address of now."""
    row = db.session.execute(
        select(User.password_hash, User.email_canonical).where(
            User.organization_id == organization_id, User.id == user_id
        )
    ).one()
    return f"{row.password_hash or ''}\n{row.email_canonical}"
