"""A sign-in that waits, as the pages of the second step see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.operations.directory import OrganizationView
from app.operations.second_factors.enrolled import methods_of, verdict_of
from app.operations.second_factors.pending import PendingView, find_pending
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.people.second_factors import Demand


@dataclass(frozen=True, slots=True)
class WaitingSignIn:
    """What waits, for what by the settings as they are now, until when that may wait, and what the person has."""

    pending: PendingView
    demand: Demand
    until: datetime | None
    methods: tuple[str, ...]

    def person(self, stranger: Actor) -> Actor:
        """Who has given the first proof, for what is done to their own account before the sign-in stands."""
        return self.pending.person(stranger)


@read
def find_waiting(organization: OrganizationView, token: str, browser_id: str) -> WaitingSignIn | None:
    """The sign-in of the token, begun in this browser; None when it has ended."""
    pending = find_pending(organization, token, browser_id)
    if pending is None:
        return None
    verdict = verdict_of(organization, pending.user_id, pending.amr)
    methods = methods_of(organization.id, pending.user_id)
    return WaitingSignIn(pending, verdict.demand, verdict.until, methods)
