"""Requesting a password reset: the response is the same for everyone (EN-1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor
from tests.support.mail_server import Mailbox

NEW = "a wholly different password"


def bare(text: str) -> str:
    return re.sub(r'value="[^"]*"|req_\w+', "", text)


def test_forgotten_password_is_reset(
    visitor: Visitor, acme: Any, ada: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    path = f"/organizations/{acme.slug}/forgot"
    assert path in visitor.get(f"/organizations/{acme.slug}/login").text
    visitor.get(path)
    answer = visitor.post(path, email=ada.email)
    assert (answer.status_code, answer.location) == (303, f"{path}?sent=1")
    assert 'id="forgot-sent"' in visitor.get(answer.location).text
    deliver()
    link = box.links()[0].removeprefix("http://localhost")
    visitor.get(link)
    assert visitor.post(link, password=NEW).status_code == 303
    assert visitor.sign_in(ada, NEW).status_code == 303


def test_reset_request_for_known_and_unknown_email_looks_the_same(
    app: Flask, acme: Any, ada: Any, box: Mailbox
) -> None:
    """EN-1: compares status, headers and page."""
    path = f"/organizations/{acme.slug}/forgot"
    answers = []
    for email in (ada.email, "nobody@acme.example"):
        visitor = Visitor(app)
        visitor.get(path)
        answer = visitor.post(path, email=email)
        headers = {name for name, _ in answer.headers}
        answers.append((answer.status_code, answer.location, headers, bare(answer.text)))
    assert answers[0] == answers[1]


def test_reset_without_mail_server_names_the_administrator(visitor: Visitor, acme: Any) -> None:
    page = visitor.get(f"/organizations/{acme.slug}/forgot")
    assert 'id="forgot-closed"' in page.text and 'id="forgot-submit"' not in page.text


@pytest.mark.usefixtures("box")
def test_reset_request_with_invalid_email_is_rejected(visitor: Visitor, acme: Any) -> None:
    path = f"/organizations/{acme.slug}/forgot"
    visitor.get(path)
    answer = visitor.post(path, email="nobody")
    assert answer.status_code == 400 and 'aria-invalid="true"' in answer.text
