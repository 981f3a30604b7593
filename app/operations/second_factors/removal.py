"""One's own second factors: what is there, taking one away, and new recovery codes."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from app.operations import audit
from app.operations.directory import OrganizationView
from app.operations.mail.notices import notify_user
from app.operations.people.freshness import require_fresh_sign_in, require_standing_sign_in
from app.operations.people.sessions import end_sessions_of_user, renew_session
from app.operations.second_factors import recovery_codes, totp
from app.operations.second_factors.enrolled import methods_of, verdict_of
from app.operations.second_factors.enrolment import own_account_of
from app.operations.second_factors.totp import AppView
from app.operations.tokens import revocation
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import public_id
from app.rules.languages.sentences import sentence
from app.rules.people.second_factors import TOTP, Demand, allowed_methods


class FactorDemanded(Conflict):
    """The organization asks this person for a second factor, and it would be the last."""

    code = "second_factor_demanded"


@dataclass(frozen=True, slots=True)
class OwnFactors:
    """What protects one's account beside the password; ``allowed`` may be set up."""

    allowed: tuple[str, ...]
    methods: tuple[str, ...]
    app: AppView | None
    codes_left: int


@read
def own_factors(actor: Actor) -> OwnFactors:
    """The actor's own second factors. Raises Forbidden for anybody but a person in their own organization."""
    organization, user_id = own_account_of(actor)
    return OwnFactors(
        allowed_methods(organization.settings),
        methods_of(organization.id, user_id),
        totp.find_app(organization.id, user_id),
        recovery_codes.count_left(organization.id, user_id),
    )


@transaction
def remove_app(actor: Actor) -> str | None:
    """The actor's authenticator app counts no more. Returns the new value of this browser's cookie.

    Raises FreshSignInRequired, which asks for the second factor too, NotFound, FactorDemanded. Audit:
    ``second_factor.removed``.
    """
    organization, user_id = own_account_of(actor)
    require_fresh_sign_in(actor)
    if not totp.remove_app(organization.id, user_id):
        raise NotFound("You have no authenticator app.")
    return finish_removing(actor, organization, user_id, TOTP)


@transaction
def finish_removing(actor: Actor, organization: OrganizationView, user_id: UUID, method: str) -> str | None:
    """What the end of every factor brings, in the unit that removed it; returns the new value of the cookie.

    With the last one the recovery codes go, which stand in for it. Raises FactorDemanded when the person could not
    sign in without another one. Other sign-ins and what apps hold have ended (SS-6). Audit:
    ``second_factor.removed``.
    """
    if not methods_of(organization.id, user_id):
        recovery_codes.remove_codes(organization.id, user_id)
        if verdict_of(organization, user_id, ()).demand is Demand.ENROL:
            raise FactorDemanded(
                sentence(
                    "%(organization)s asks you for a second factor. Set up another one first.",
                    organization=organization.name,
                )
            )
    ended = end_sessions_of_user(organization.id, user_id, keep=actor.session_id)
    grants = revocation.revoke_grants_of_user(actor, user_id, reason="second_factor_removed")
    audit.record(
        actor,
        "second_factor.removed",
        target_type="user",
        target_id=public_id("usr", user_id),
        before={"method": method},
        after={"ended_sessions": ended, "ended_grants": grants},
    )
    notify_user(actor, user_id, "second_factor_removed")
    require_standing_sign_in(actor)
    return renew_session(actor)


@transaction
def renew_codes(actor: Actor) -> tuple[str, ...]:
    """New recovery codes, clear in this answer alone; those before are void (MF-4), and the person is told by mail.

    Raises FreshSignInRequired, Conflict for somebody without a second factor. Audit: ``recovery_codes.renewed``.
    """
    organization, user_id = own_account_of(actor)
    require_fresh_sign_in(actor)
    if not methods_of(organization.id, user_id):
        raise Conflict(
            "Recovery codes stand in for a second factor. Set one up first.", code="no_second_factor"
        )
    codes = recovery_codes.make_codes(organization, user_id)
    audit.record(
        actor,
        "recovery_codes.renewed",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"recovery_codes": len(codes)},
    )
    notify_user(actor, user_id, "recovery_codes_renewed")
    require_standing_sign_in(actor)
    return codes
