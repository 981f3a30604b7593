"""Limits on guessing passwords.

Failures from unknown browsers count towards four limits: the account from one network, with a wait that
doubles, one network across all accounts, the account across all networks, with a monthly cap that waiting
does not lift (LK-1), and the whole organization, which stops many networks from trying stolen passwords on
many accounts (LK-2). A browser in which the account's owner has signed in before has its own counter, so that
attackers elsewhere cannot make the owner wait.

All counters are per organization: failures in one organization never delay sign-ins in another (TN-9, TN-14).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import rate_limits
from app.operations.store.rate_limits import AttemptResult, Limit, bucket_key, network_limits
from app.operations.store.transactions import transaction_part
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.passwords import Lockout, networks_of

MAX_FAILURES_PER_NETWORK = 100
"""From one network across all accounts, which stops one password from being tried on many of them."""
MAX_FAILURES_PER_ACCOUNT = 100
"""At one account from unknown browsers on any network (NIST SP 800-63B-4 section 3.2.2). Beyond it, the
owner can sign in from a known browser or reset the password, or has to wait for a month."""
MAX_FAILURES_PER_ORGANIZATION = 1000
"""From unknown browsers within the window of the settings. Beyond it, attempts are accepted only
occasionally."""
_BUCKET = "sign_in"
_MONTH = timedelta(days=30)
_ACCOUNT_CAP = Lockout(MAX_FAILURES_PER_ACCOUNT, _MONTH, _MONTH, _MONTH)
_BUDGET_DELAY, _MAX_BUDGET_DELAY = timedelta(seconds=10), timedelta(seconds=60)


class PasswordAttempt(Struct, frozen=True):
    """A claimed attempt to guess a password. ``is_capped`` means that waiting does not help."""

    result: AttemptResult
    is_capped: bool


def claim_password_attempt(
    organization: OrganizationSnapshot, email: str, *, ip_address: str | None, browser: UUID | None
) -> PasswordAttempt:
    """Count an attempt as failed in advance, unless it has to wait.

    ``browser`` is the id of the account's known browser if the attempt comes from one. Call it outside a transaction,
    and release the attempts if the password was right.
    """
    name = canonical_email(email) or email[:400].casefold()
    limits = (
        (Limit(_browser_bucket(browser), Lockout.of(organization.settings)),)
        if browser is not None
        else _unknown_browser_limits(organization, name, ip_address)
    )
    result = rate_limits.record_attempt(organization.id, *limits)
    capped = _account_bucket(name)
    return PasswordAttempt(result, any(limit.bucket == capped for limit in result.exceeded))


@transaction_part
def clear_failed_attempts(
    organization_id: str,
    email_canonical: str,
    *,
    ip_address: str | None = None,
    browser: UUID | None = None,
    attempts: Iterable[UUID] = (),
) -> None:
    """Clear the failures at an account, and in its known browser, after its owner signed in or chose a new password.

    ``attempts`` are those of this sign-in. Failures of the network and the organization remain, so that owning one
    account does not help to attack others.
    """
    buckets = [_account_bucket(email_canonical)]
    buckets += [bucket_key(_BUCKET, email_canonical, network) for network, _ in networks_of(ip_address)]
    if browser is not None:
        buckets.append(_browser_bucket(browser))
    rate_limits.clear_attempts(organization_id, *buckets, attempts=attempts)


def _unknown_browser_limits(
    organization: OrganizationSnapshot, name: str, ip_address: str | None
) -> tuple[Limit, ...]:
    lockout = Lockout.of(organization.settings)
    budget = replace(
        lockout.with_max_failures(MAX_FAILURES_PER_ORGANIZATION),
        delay=_BUDGET_DELAY,
        max_delay=_MAX_BUDGET_DELAY,
    )
    return (
        *network_limits(lockout, ip_address, _BUCKET, name),
        *network_limits(lockout.with_max_failures(MAX_FAILURES_PER_NETWORK), ip_address, "sign_in network"),
        Limit(_account_bucket(name), _ACCOUNT_CAP),
        Limit(bucket_key("sign_in organization"), budget),
    )


def _account_bucket(name: str) -> bytes:
    return bucket_key("sign_in account", name)


def _browser_bucket(browser: UUID) -> bytes:
    return bucket_key("sign_in browser", str(browser))
