"""The same email in two organizations belongs to two independent users (TN-10)."""

from __future__ import annotations

from flask import Flask

from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users import deletion
from tests.factories import Factory


def test_tn10_same_email_is_another_user_in_each_organization(context: Flask, make: Factory) -> None:
    acme, globex = make.organization(), make.organization()
    here = make.user(acme, email="ada@example.com")
    there = make.user(globex, email="ada@example.com")
    assert here.id != there.id
    deletion.delete_user(make.actor(acme), here.public_id)
    gone = sign_in(acme.id, here.email, here.password)
    never = sign_in(acme.id, "nobody@example.com", here.password)
    assert not isinstance(gone, SignedIn) and gone == never, "the response reveals the other user"
    assert isinstance(sign_in(globex.id, there.email, there.password), SignedIn)
