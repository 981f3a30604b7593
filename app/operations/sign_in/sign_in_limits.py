"""Limits of guessing: what is counted when somebody tries a password, and when they have to wait.

Browsers that nobody knows are counted four times: at the account from their network, whose wait doubles; by their
network, whatever the accounts; at the account, whatever the networks, with an end that no patience passes (LK-1); and
in the organization as a whole, which is what many networks that try stolen passwords at many accounts share (LK-2).
A browser in which the account's owner has signed in before is counted by itself alone, so nobody can make it wait.

All of it is counted by organization: what happens in one makes nobody wait in another (TN-9, TN-14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.known_browsers import find_known_browser
from app.operations.store import rate_limits
from app.operations.store.rate_limits import AttemptResult, Limit, bucket_key, network_limits
from app.operations.store.transactions import transaction
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.lockout import Lockout, networks_of

MAX_FAILURES_PER_NETWORK = 100
"""Failures from one network, whatever the accounts, before it waits: whoever tries one password on many of them."""
MAX_FAILURES_PER_ACCOUNT = 100
"""Failures at one account from unknown browsers, whatever the networks (NIST SP 800-63B-4 section 3.2.2). After that
its owner signs in from a known browser or chooses a new password by a link; otherwise a month has to pass."""
MAX_FAILURES_PER_ORGANIZATION = 1000
"""Failures from unknown browsers in the window of the settings. Beyond it one may be tried now and then."""
_FROM = "sign_in"
_MONTH = timedelta(days=30)
_CAP = Lockout(MAX_FAILURES_PER_ACCOUNT, _MONTH, _MONTH, _MONTH)
_BUDGET_DELAY, _LONGEST_BUDGET_DELAY = timedelta(seconds=10), timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class PasswordAttempt:
    """A password that somebody may try, or has to wait for; ``is_capped`` says that waiting is not what helps."""

    claim: AttemptResult
    is_capped: bool


def claim_password_attempt(
    organization: OrganizationSnapshot, email: str, *, address: str | None, known: str
) -> PasswordAttempt:
    """The try is counted, unless it has to wait; ``known`` is the value of the cookie of known browsers.

    Call it outside a transaction, and take its attempts back when the password was not wrong.
    """
    canonical = canonical_email(email)
    name = canonical or email[:400].casefold()
    browser = find_known_browser(organization.id, canonical or "", known)
    limits = (
        _limits_of_known(organization, browser)
        if browser is not None
        else _limits_of_unknown(organization, name, address)
    )
    claim = rate_limits.record_attempt(organization.id, *limits)
    capped = _account(name)
    return PasswordAttempt(claim, any(limit.bucket == capped for limit in claim.exceeded))


@transaction
def clear_failed_attempts(
    organization_id: str, email_canonical: str, *, address: str | None = None, known: str = ""
) -> None:
    """The owner was here: what was tried at the account before counts no more; part of a complete sign-in, or of
    the new password that they chose.

    What the network and the organization have failed at stays: whoever owns one account gains nothing at others.
    """
    rate_limits.clear_attempts(organization_id, _account(email_canonical))
    for network, _ in networks_of(address):
        rate_limits.clear_attempts(organization_id, bucket_key(_FROM, email_canonical, network))
    browser = find_known_browser(organization_id, email_canonical, known) if known else None
    if browser is not None:
        rate_limits.clear_attempts(organization_id, _browser(browser))


def _limits_of_known(organization: OrganizationSnapshot, browser: UUID) -> tuple[Limit, ...]:
    return (Limit(_browser(browser), Lockout.of(organization.settings)),)


def _limits_of_unknown(
    organization: OrganizationSnapshot, name: str, address: str | None
) -> tuple[Limit, ...]:
    lockout = Lockout.of(organization.settings)
    budget = replace(
        lockout.from_failure(MAX_FAILURES_PER_ORGANIZATION),
        delay=_BUDGET_DELAY,
        max_delay=_LONGEST_BUDGET_DELAY,
    )
    return (
        *network_limits(lockout, address, _FROM, name),
        *network_limits(lockout.from_failure(MAX_FAILURES_PER_NETWORK), address, "sign_in network"),
        Limit(_account(name), _CAP),
        Limit(bucket_key("sign_in organization"), budget),
    )


def _account(name: str) -> bytes:
    return bucket_key("sign_in account", name)


def _browser(browser: UUID) -> bytes:
    return bucket_key("sign_in browser", str(browser))
