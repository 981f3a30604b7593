"""An independent tester checks discovery, resources, filters and PATCH against RFC 7643 and 7644."""

from __future__ import annotations

from tests.scim.conftest import Directory


def test_tester_finds_nothing_wrong(directory: Directory) -> None:
    # Its libraries take seconds to import, which every worker would spend to collect the tests.
    from tests.scim.tester import find_problems

    directory.define_attributes({"key": "title"}, {"key": "user_type"})
    wrong, count = find_problems(directory)
    assert wrong == [], "\n".join(wrong)
    assert count > 20
