"""The check of pages finds what is wrong with them, also with colours that it has seen before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.browser import faults_of

GOOD, BAD = '<p style="color: #222">Dark</p>', '<p style="color: #bbb">Pale</p>'
DISABLED = BAD.replace("<p", '<p aria-disabled="true"')
PAGE = """<!doctype html><html lang="en"><head><title>Page</title><meta name="viewport" content="width=device-width">
<style>body {{ background: #fff }}</style></head><body><main><h1>Page</h1>{}</main></body></html>"""
# What the page contains, and the rule of axe that it breaks.
PAGES = (
    (GOOD, None),
    (BAD, "color-contrast"),
    (GOOD * 3 + BAD, "color-contrast"),
    (GOOD, None),
    (f'{GOOD}<div style="background: #777">{GOOD}</div>', "color-contrast"),
    (f'{GOOD}<div style="opacity: 0.3">{GOOD}</div>', "color-contrast"),
    # axe leaves out disabled elements, so only the last one shows that the colours are wrong.
    (DISABLED * 4, None),
    (DISABLED * 4 + BAD, "color-contrast"),
    (f"{GOOD}<input>", "label"),
    (f'{GOOD}<div style="width: 2000px">Wide</div>', "wider than its screen"),
    (BAD, "color-contrast"),
)


@pytest.mark.browser
def test_every_fault_is_found_in_both_looks(page: Any) -> None:
    page.set_content(PAGE.format(f'{GOOD}<div style="width: 12rem">Wide with large text</div>'))
    (fault,) = faults_of(page)
    assert "large text: wider than its screen" in fault
    for content, rule in PAGES:
        page.set_content(PAGE.format(content))
        faults = faults_of(page)
        assert len(faults) == (0 if rule is None else 2), (content, faults)
        assert all(rule in fault for fault in faults if rule), (content, faults)
