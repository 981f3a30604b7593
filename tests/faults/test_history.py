"""The checker of histories finds each kind of violation, and nothing in a history that follows the rules."""

from __future__ import annotations

from typing import Any

from tests.faults.history import Operation, Outcome, Rule, check_history
from tests.support.cases import each

GRACE_SECONDS = 30
OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN
TOKEN, GRANT, CLIENT, SECRET = "token", "grant", "client", "secret"


def operation(name: str, at: float, outcome: Outcome = OK, *, machine: int = 0, **changes: Any) -> Operation:
    """Return an operation of a tenth of a second."""
    for field in ("uses", "creates", "ends", "may_end"):
        changes[field] = frozenset(changes.get(field, ()))
    status = {OK: 200, REFUSED: 400, UNKNOWN: 503}[outcome]
    good: dict[str, Any] = {"machine": machine, "began": at, "ended": at + 0.1, "status": status}
    return Operation(name=name, outcome=outcome, **(good | changes))


def issued(at: float = 0) -> Operation:
    return operation("issue", at, uses=[CLIENT], creates=[TOKEN])


def introspected(at: float, outcome: Outcome = OK, machine: int = 0) -> Operation:
    return operation("introspect", at, outcome, machine=machine, uses=[TOKEN, GRANT, CLIENT])


def revoked(at: float, outcome: Outcome = OK, thing: str = TOKEN) -> Operation:
    return operation("revoke", at, outcome, ends=[thing])


def secret_revoked(at: float) -> Operation:
    return operation("revoke secret", at, ends=[SECRET], seconds_elsewhere=1)


def issued_with_secret(at: float, outcome: Outcome = OK, machine: int = 0) -> Operation:
    return operation("issue", at, outcome, machine=machine, uses=[SECRET])


def refreshed(at: float, outcome: Outcome = OK, successor: str = "second") -> Operation:
    return operation("refresh", at, outcome, uses=["first", GRANT], consumes="first", creates=[successor])


FOLLOWING = {
    "token active until it is revoked": [
        issued(),
        introspected(1, machine=1),
        revoked(2),
        introspected(3, REFUSED),
    ],
    "revocation takes effect before its response": [issued(), introspected(1.95, REFUSED), revoked(2)],
    "introspection began before the response to the revocation": [issued(), revoked(2), introspected(2.05)],
    "revocation without response took effect": [issued(), revoked(2, UNKNOWN), introspected(9, REFUSED)],
    "revocation without response took no effect": [issued(), revoked(2, UNKNOWN), introspected(9)],
    "grant was revoked": [issued(), revoked(2, thing=GRANT), introspected(3, REFUSED)],
    "revoked secret works elsewhere for a second": [secret_revoked(2), issued_with_secret(3, machine=1)],
    "refresh is repeated": [refreshed(1), refreshed(2)],
    "refresh is repeated after a lost response": [refreshed(1, UNKNOWN), refreshed(30)],
    "refresh is repeated after the grace period": [refreshed(1, UNKNOWN), refreshed(31.5, REFUSED)],
    "rejected refresh ended its grant": [
        refreshed(1, UNKNOWN),
        operation("refresh", 31.5, REFUSED, uses=["first"], consumes="first", may_end=[GRANT]),
        introspected(32, REFUSED),
    ],
    "service is unavailable": [issued(), introspected(1, UNKNOWN), introspected(2)],
}
VIOLATING = {
    "token is unknown": ([issued(), introspected(1, REFUSED, machine=1)], Rule.LOST),
    "token is unknown before it is revoked": ([issued(), introspected(1, REFUSED), revoked(2)], Rule.LOST),
    "token is inactive because its revocation was rejected": (
        [
            issued(),
            revoked(1, UNKNOWN, GRANT),
            operation("revoke", 2, REFUSED, uses=[GRANT], ends=[TOKEN]),
            operation("introspect", 3, REFUSED, uses=[TOKEN]),
        ],
        Rule.LOST,
    ),
    "token is active after its revocation": ([issued(), revoked(2), introspected(2.2)], Rule.REVIVED),
    "token is active elsewhere": ([issued(), revoked(2), introspected(2.2, machine=1)], Rule.REVIVED),
    "token is active again": (
        [issued(), revoked(2), introspected(3, REFUSED), introspected(300)],
        Rule.REVIVED,
    ),
    "token of a revoked grant is active": (
        [issued(), revoked(2, thing=GRANT), introspected(3)],
        Rule.REVIVED,
    ),
    "revoked secret works where it was revoked": ([secret_revoked(2), issued_with_secret(2.2)], Rule.REVIVED),
    "revoked secret works elsewhere after a second": (
        [secret_revoked(2), issued_with_secret(3.2, machine=1)],
        Rule.REVIVED,
    ),
    "valid secret is rejected": ([issued_with_secret(1, REFUSED)], Rule.LOST),
    "two successors": ([refreshed(1), refreshed(1, successor="third")], Rule.FORKED),
    "retry is rejected within the grace period": (
        [refreshed(1, UNKNOWN), refreshed(30, REFUSED)],
        Rule.LOST,
    ),
    "first refresh is rejected": ([refreshed(1, REFUSED)], Rule.LOST),
    "internal error": ([operation("issue", 1, UNKNOWN, status=500)], Rule.ERROR),
    "event is missing": ([operation("register", 1, audited=("client.registered", "other"))], Rule.UNAUDITED),
}
AUDITED = {("client.registered", "cli_1")}


@each("name", FOLLOWING)
def test_history_that_follows_the_rules_has_no_violation(name: str) -> None:
    assert check_history(FOLLOWING[name], audited=AUDITED, grace_seconds=GRACE_SECONDS) == []


@each("name", VIOLATING)
def test_history_that_violates_a_rule_is_found(name: str) -> None:
    history, rule = VIOLATING[name]
    found = check_history(history, audited=AUDITED, grace_seconds=GRACE_SECONDS)
    assert [violation.rule for violation in found] == [rule]


def test_audited_operation_and_what_the_database_shows_are_told_apart() -> None:
    history = [operation("register", 1, audited=("client.registered", "cli_1"))]
    assert check_history(history, audited=AUDITED, grace_seconds=GRACE_SECONDS) == []
    broken = check_history(
        history,
        audited=AUDITED,
        chain_problems=["position 7"],
        purge_problems=["no janitor"],
        grace_seconds=GRACE_SECONDS,
    )
    assert [violation.rule for violation in broken] == [Rule.CHAIN, Rule.PURGED]
