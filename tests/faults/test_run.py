"""The run of faults in its short form. ``script/test faults`` is the long one, and the only one behind HAProxy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.servers import ROOT

SECONDS = 12
# Other tests run beside it, and servers that are started meanwhile.
SLOWNESS = 4


@pytest.mark.slow
def test_short_run_of_faults_loses_and_revives_nothing() -> None:
    command = [sys.executable, "-m", "tests.faults", "--minutes", str(SECONDS / 60), "--seed", "2"]
    command += ["--slowness", str(SLOWNESS), "--faults", "kill-worker,kill-database,pause-worker,step-clock"]
    command += ["--database", "mysql" if os.environ.get("GATEHOUSE_TEST_MYSQL") else "mariadb"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[-3000:]}"
