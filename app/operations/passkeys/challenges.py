"""Challenges: made for one purpose in one browser, good for five minutes, and used by one answer alone (MF-5)."""

from __future__ import annotations

import os

from app.config import current
from app.operations import clock, keyring
from app.operations.client_proof import single_use
from app.operations.directory import OrganizationView
from app.rules.errors import Conflict, DomainError
from app.rules.people.passkey_challenges import LIFE, NONCE_BYTES, Standing, make_challenge, read_challenge
from app.rules.people.passkeys import RelyingParty, relying_party

REGISTER, SIGN_IN, SECOND_FACTOR = "register", "sign in", "second factor"
INVITATION = "invitation"


class ChallengeEnded(DomainError):
    """The answer comes too late, a second time, or from another browser than the one that was asked."""

    code = "passkey_challenge_ended"

    def __init__(self) -> None:
        super().__init__("That took too long, or this page was used before. Try your passkey again.")


class NoPasskeysHere(Conflict):
    """The service is reached at a number, and authenticators know domains alone."""

    code = "passkeys_unavailable"

    def __init__(self) -> None:
        super().__init__("Passkeys need a domain name, and this service is reached by an IP address.")


def find_party() -> RelyingParty | None:
    """Who this service is to authenticators, by its configured address; None where it has no domain."""
    return relying_party(current().base_url)


def get_party() -> RelyingParty:
    """As ``find_party``. Raises NoPasskeysHere."""
    party = find_party()
    if party is None:
        raise NoPasskeysHere
    return party


def issue_challenge(organization: OrganizationView, purpose: str, browser_id: str, whose: str = "") -> str:
    """A challenge for what is asked now. ``whose``: the user or the sign-in that waits, where that is known."""
    return make_challenge(
        _key(organization),
        _bound(organization, purpose, browser_id, whose),
        os.urandom(NONCE_BYTES),
        clock.now() + LIFE,
    )


def require_challenge(
    organization: OrganizationView, purpose: str, browser_id: str, challenge: str, whose: str = ""
) -> None:
    """It was made for this and has not ended; whether it was used is asked by ``use_challenge``.

    Raises ChallengeEnded.
    """
    bound = _bound(organization, purpose, browser_id, whose)
    if read_challenge(_key(organization), bound, challenge, clock.now())[0] is not Standing.GOOD:
        raise ChallengeEnded


def use_challenge(organization: OrganizationView, challenge: str) -> None:
    """It counts no more, whatever follows: of all who bring it at once a unique key lets one go on.

    Called outside of a unit of work, with an answer that was verified. Raises ChallengeEnded.
    """
    if not single_use.claim(organization.id, "passkey", "", challenge, until=clock.now() + LIFE):
        raise ChallengeEnded


def _key(organization: OrganizationView) -> bytes:
    return keyring.derive_for(organization.id, "passkey challenges")


def _bound(organization: OrganizationView, purpose: str, browser_id: str, whose: str) -> tuple[str, ...]:
    return purpose, organization.id, browser_id, whose
