"""The report blames an upgrade for the requests that it made fail, and for no others."""

from __future__ import annotations

from tests.faults.history import Operation, Outcome
from tests.faults.injection import Injected
from tests.faults.report import Result
from tests.support.cases import each

UPGRADE = Injected("upgrade", "every machine", began=10.0, healed=60.0)
KILL = Injected("kill-server", "machine 1", began=70.0, healed=80.0)


def request(began: float, seconds: float, status: int = 200) -> Operation:
    outcome = Outcome.OK if status == 200 else Outcome.UNKNOWN
    return Operation(
        name="issue", machine=0, began=began, ended=began + seconds, status=status, outcome=outcome
    )


SLOW = request(28.0, 4.0)
# The requests, and how many of them failed because of the upgrade.
CASES = {
    "all accepted": ([request(20.0, 0.1), SLOW], 0),
    "refused by a machine that was restarted": ([request(20.0, 0.1, 503)], 1),
    "cut by a machine that was restarted": ([request(20.0, 0.1, 0)], 1),
    "cut while others wait": ([request(30.0, 0.1, 0), SLOW], 1),
    "gave up on an overloaded machine": ([request(20.0, 2.5, 503)], 0),
    "circuit breaker of an overloaded machine": ([request(30.0, 0.1, 503), SLOW], 0),
    "refused after others have waited": ([request(40.0, 0.1, 503), SLOW], 1),
    "failed before the upgrade": ([request(5.0, 0.1, 503)], 0),
    "failed because of a fault": ([request(75.0, 0.1, 0)], 0),
}


@each("name", CASES)
def test_upgrade_is_blamed_for_requests_that_it_made_fail(name: str) -> None:
    history, noticed = CASES[name]
    result = Result(history, (), (UPGRADE, KILL), (), 0, 0, is_balanced=True)
    assert len(result.noticed) == noticed
    assert result.is_good is (noticed == 0)
