"""Failed client authentications are counted by organization, client and network."""

from __future__ import annotations

import pytest
from flask import Flask

from app.operations.clients.client_authentication import MAX_FAILURES, check_failure_limit, note_failure
from app.rules.errors import TooManyRequests
from app.rules.identifiers import format_client_id, new_id
from app.rules.sign_in.passwords import IPV6_SITE_FACTOR
from tests.support.caches import forget_failures

ADDRESS = "192.0.2.7"


def test_failures_at_another_organization_do_not_delay_a_client(context: Flask) -> None:
    """TN-9: failures at one organization's endpoint do not use up the attempts of a client of another one."""
    forget_failures()
    client_id = format_client_id("acme0001", new_id())
    for _ in range(MAX_FAILURES):
        note_failure("theirs01", client_id, ADDRESS)
    with pytest.raises(TooManyRequests):
        check_failure_limit("theirs01", client_id, ADDRESS)
    check_failure_limit(None, client_id, ADDRESS)
    check_failure_limit("acme0001", client_id, ADDRESS)
    for _ in range(MAX_FAILURES):
        note_failure(None, client_id, ADDRESS)
    with pytest.raises(TooManyRequests):
        check_failure_limit("acme0001", client_id, ADDRESS)
    forget_failures()


def test_networks_of_one_site_share_a_limit(context: Flask) -> None:
    """LK-1: the /48 of an IPv6 address counts too, with a higher limit."""
    forget_failures()
    for number in range(MAX_FAILURES * IPV6_SITE_FACTOR):
        check_failure_limit("acme0001", "x", f"2001:db8:1:{number:x}::1")
        note_failure("acme0001", "x", f"2001:db8:1:{number:x}::1")
    with pytest.raises(TooManyRequests):
        check_failure_limit("acme0001", "x", "2001:db8:1:ffff::1")
    check_failure_limit("acme0001", "x", "2001:db8:2::1")
    forget_failures()
