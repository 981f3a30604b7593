"""The server seals audit events automatically (AU-3)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.operations.audit.chain_verification import verify_audit_log
from tests.factories import Factory

pytestmark = pytest.mark.live


def test_audit_event_is_sealed_within_ten_seconds(live_server: Any) -> None:
    """AU-3."""
    make = Factory(live_server.app)
    organization = make.organization()
    actor = make.system(organization)
    began = time.monotonic()
    with live_server.app.app_context():
        while (found := verify_audit_log(actor)).length == 0:
            assert time.monotonic() - began < 60, "no event was sealed"
            time.sleep(0.2)
        assert found.is_intact and found.checked == 1 and found.pending == 0
