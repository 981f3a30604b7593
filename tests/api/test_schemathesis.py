"""Every operation of the OpenAPI document with generated input: no 500, no undocumented status.

Half of the calls name things that are there, so that the input meets the operation and not the 404 before it.
The same input each time, and a bound on the time: a longer run is ``GATEHOUSE_FUZZ_EXAMPLES=1000``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import checks
from schemathesis.checks import FailureGroup

from tests.factories import Factory, bearer_header
from tests.support.databases import Database
from tests.support.world import Corner, build

EXAMPLES = int(os.environ.get("GATEHOUSE_FUZZ_EXAMPLES", "4"))
SECONDS = 60 if EXAMPLES <= 4 else 3600
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

# No input violates the schemas of these, which take only strings, optional ones but for the ID in the path. To find
# that out takes seconds.
ALWAYS_VALID = {
    *("GET /me", "GET /instance/settings-limits", "POST /oauth/logout"),
    *("GET /oauth/register/{registeredClientId}", "DELETE /oauth/register/{registeredClientId}"),
}


def _is_refused(context: Any, response: Any, case: Any) -> bool | None:
    """Check that input outside its schema is rejected; 412 and 413 reject it before its fields are validated."""
    return (
        None
        if response.status_code in {412, 413}
        else checks.negative_data_rejection(context, response, case)
    )


def _last(label: str) -> tuple[bool, bool]:
    """Return a sort key that puts deletions after everything that they would delete."""
    takes_the_tokens = label in {"POST /organizations/{id}/revocations", "DELETE /organizations/{id}"}
    return ("DELETE" in label or takes_the_tokens, takes_the_tokens)


@pytest.mark.timeout(SECONDS + 600)
# Hypothesis warns about any random numbers that are drawn while examples are generated, also in other threads.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
def test_no_input_causes_500_or_undocumented_status(app: Flask, make: Factory, database: Database) -> None:
    corner, _ = build(app, make)
    tokens = {"own": make.bearer(corner.organization), "root": make.bearer(make.root())}
    schema = schemathesis.openapi.from_wsgi("/openapi.json", app)
    found = [result.ok() for result in schema.get_all_operations()]
    operations = sorted(found, key=lambda operation: _last(operation.label))
    assert len(operations) > 40
    # MariaDB is the stricter engine.
    wanted = EXAMPLES if database.engine == "mariadb" else max(1, EXAMPLES // 4)
    began, failures = time.monotonic(), []
    for operation in operations:
        # On a busy machine, the last operations get one example each, so that none is left out.
        examples = wanted if time.monotonic() - began < SECONDS else 1
        for mode in schemathesis.GenerationMode:
            if mode.is_negative and operation.label in ALWAYS_VALID:
                continue
            try:
                _fuzz(operation, mode, corner, tokens, examples)
            except Unsatisfiable:
                # An operation without parameters and body: no input can violate its schema.
                assert mode.is_negative, operation.label
            except FailureGroup as failure:
                failures.append(
                    f"{operation.label} ({mode.value}): " + "; ".join(map(str, failure.exceptions))
                )
    assert not failures, "\n\n".join(failures)


def _fuzz(operation: Any, mode: Any, corner: Corner, tokens: dict[str, str], examples: int) -> None:
    wanted = [*CHECKS, _is_refused] if mode.is_negative else CHECKS

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy(mode),
        is_there=strategies.booleans(),
        who=strategies.sampled_from(sorted(tokens)),
    )
    def run(case: Any, is_there: bool, who: str) -> None:
        if is_there:
            case.path_parameters = {name: corner.ids[name] for name in case.path_parameters or {}}
        answer = case.call(headers=bearer_header(tokens[who]))
        case.validate_response(answer, checks=wanted)

    run()
