"""The next step of an authorization request: sign-in, consent or none; and the effect of prompt=none."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.interaction import (
    PASSWORD,
    InteractionContext,
    SignIn,
    Step,
    is_local,
    needs_consent,
    next_step,
)
from app.rules.errors import AuthorizationError
from app.rules.organizations import settings
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
PLAIN = AuthorizationParameters("https://rp.example/cb", ("openid", "email"), "c" * 43)


def sign_in_seconds_ago(seconds: float, **facts) -> SignIn:
    moment = NOW - timedelta(seconds=seconds)
    return SignIn(moment, moment, "usr_ada", contexts=(PASSWORD,), **facts)


def step(
    sign_in: SignIn | None,
    *,
    began_seconds_ago: float = 0,
    consent: bool = False,
    about: Collection[str] | None = None,
    unknown_hint: bool = False,
    can_register: bool = True,
    **changes,
) -> Step | str:
    circumstances = InteractionContext(
        began_at=NOW - timedelta(seconds=began_seconds_ago),
        now=NOW,
        needs_consent=consent,
        subjects=None if about is None else frozenset(about),
        is_hint_unknown=unknown_hint,
        can_register=can_register,
    )
    try:
        return next_step(replace(PLAIN, **changes), sign_in, circumstances)
    except AuthorizationError as refused:
        return refused.code


OLD, FRESH = sign_in_seconds_ago(600), sign_in_seconds_ago(5)
CHOSEN = sign_in_seconds_ago(600, selected=True)
# At an identity provider that did not ask the user again.
SILENT = replace(OLD, authenticated_at=NOW - timedelta(hours=1))
NONE, SELECT, CREATE = {"prompts": ("none",)}, ("select_account",), ("create",)


def essential(*values: str) -> dict:
    """Return a request that requires one of the authentication context classes."""
    wish = {"essential": True} | ({"values": list(values)} if values else {})
    return {"claims": {"id_token": {"acr": wish}}, "acr_values": values}


@each(
    ("expected", "sign_in", "facts"),
    [
        (Step.SIGN_IN, None, {}),
        (Step.SIGN_IN, None, {"consent": True}),
        (Step.CONSENT, OLD, {"consent": True}),
        (Step.ISSUE, OLD, {}),
        ("login_required", None, {"prompts": ("none",)}),
        ("login_required", None, {"prompts": ("none",), "consent": True}),
        ("consent_required", OLD, {"prompts": ("none",), "consent": True}),
        (Step.ISSUE, OLD, {"prompts": ("none",)}),
        # SS-7: a stale session cannot satisfy prompt or max_age ...
        (Step.SIGN_IN, FRESH, {"prompts": ("login",)}),
        (Step.SIGN_IN, FRESH, {"prompts": ("login", "consent"), "consent": True}),
        (Step.SIGN_IN, OLD, {"max_age": 599}),
        (Step.ISSUE, OLD, {"max_age": 600}),
        (Step.SIGN_IN, FRESH, {"max_age": 0}),
        ("login_required", OLD, {"max_age": 599, "prompts": ("none",)}),
        # ... and one made for this very request does, however slow the consent after it: no loop.
        (Step.ISSUE, OLD, {"prompts": ("login",), "began_seconds_ago": 700}),
        (Step.ISSUE, OLD, {"max_age": 0, "began_seconds_ago": 700}),
        (Step.CONSENT, OLD, {"max_age": 0, "began_seconds_ago": 700, "consent": True}),
        (Step.ISSUE, OLD, {"max_age": 10, "began_seconds_ago": 600}),
        # The account chooser is shown until the user has chosen, or has signed in for this request.
        (Step.SELECT_ACCOUNT, FRESH, {"prompts": SELECT}),
        (Step.ISSUE, CHOSEN, {"prompts": SELECT}),
        (Step.ISSUE, OLD, {"prompts": SELECT, "began_seconds_ago": 700}),
        (Step.SIGN_IN, None, {"prompts": SELECT}),
        (Step.SIGN_IN, CHOSEN, {"prompts": (*SELECT, "login")}),
        (Step.CONSENT, CHOSEN, {"prompts": SELECT, "consent": True}),
        # A new account, if the organization allows registration; otherwise one sign-in.
        (Step.CREATE_ACCOUNT, None, {"prompts": CREATE}),
        (Step.CREATE_ACCOUNT, FRESH, {"prompts": CREATE}),
        (Step.ISSUE, OLD, {"prompts": CREATE, "began_seconds_ago": 700}),
        (Step.SIGN_IN, None, {"prompts": CREATE, "can_register": False}),
        (Step.SIGN_IN, FRESH, {"prompts": CREATE, "can_register": False}),
        # Only the user named by the request.
        (Step.ISSUE, OLD, {"about": {"usr_eve", "usr_ada"}} | NONE),
        ("login_required", OLD, {"about": {"usr_eve"}} | NONE),
        (Step.SIGN_IN, OLD, {"about": ()}),
        ("login_required", OLD, {"about": {"usr_eve"}, "began_seconds_ago": 700}),
        ("login_required", SILENT, {"about": {"usr_eve"}, "began_seconds_ago": 700}),
        (Step.SIGN_IN, SILENT, {"prompts": ("login",), "began_seconds_ago": 700}),
        (Step.ISSUE, OLD, {"unknown_hint": True}),
        ("login_required", OLD, {"unknown_hint": True} | NONE),
        # A voluntary context class never fails; an essential one does.
        (Step.ISSUE, OLD, {"acr_values": ("urn:other",)}),
        (Step.ISSUE, OLD, essential()),
        (Step.ISSUE, OLD, essential("urn:other", PASSWORD)),
        ("unmet_authentication_requirements", OLD, essential("urn:other")),
        ("unmet_authentication_requirements", OLD, essential("urn:other") | NONE),
        (Step.SIGN_IN, None, essential("urn:other")),
    ],
)
def test_next_step(expected: Step | str, sign_in: SignIn | None, facts: dict) -> None:
    assert step(sign_in, **facts) == expected


def asks(
    *,
    trust: str = "unverified",
    is_public: bool = False,
    allowed: tuple[str, ...] = ("openid", "email"),
    policy: str = "third_party",
    uri: str = "https://rp.example/cb",
    prompts: tuple[str, ...] = (),
) -> bool:
    document = settings.effective_settings({"oauth": {"consent": {"policy": policy}}})
    parameters = replace(PLAIN, redirect_uri=uri, prompts=prompts)
    return needs_consent(parameters, trust=trust, is_public=is_public, allowed=allowed, settings=document)


@each(
    ("expected", "facts"),
    [
        (False, {}),
        (False, {"trust": "verified"}),
        (True, {"allowed": ()}),
        (True, {"allowed": ("openid",)}),
        (False, {"allowed": ("openid", "email", "profile")}),
        (True, {"prompts": ("consent",)}),
        # CO-2: clients that cannot authenticate need consent each time, including the organization's own apps.
        (True, {"is_public": True}),
        (True, {"is_public": True, "trust": "verified"}),
        (True, {"is_public": True, "trust": "first_party"}),
        (True, {"uri": "http://127.0.0.1:8080/cb"}),
        (True, {"uri": "http://127.0.0.1:8080/cb", "trust": "first_party"}),
        (True, {"uri": "http://[::1]/cb", "trust": "first_party"}),
        (True, {"uri": "http://localhost/cb", "trust": "first_party"}),
        (True, {"uri": "com.example.app:/cb", "trust": "first_party"}),
        # The organization's own confidential clients need consent only if its settings say so.
        (False, {"trust": "first_party", "allowed": ()}),
        (True, {"trust": "first_party", "allowed": (), "policy": "always"}),
        (False, {"trust": "first_party", "policy": "always"}),
        (True, {"trust": "first_party", "prompts": ("consent",)}),
        (True, {"allowed": (), "policy": "always"}),
    ],
)
def test_when_consent_is_required(expected: bool, facts: dict) -> None:
    assert asks(**facts) is expected


@each(
    ("uri", "local"),
    [
        ("https://rp.example/cb", False),
        ("https://127.0.0.1.rp.example/cb", False),
        ("http://127.0.0.1/cb", True),
        ("http://localhost:3000/cb", True),
        ("com.example.app:/cb", True),
    ],
)
def test_is_local_redirect_uri(uri: str, local: bool) -> None:
    assert is_local(uri) is local


def test_unreviewed_client_needs_consent_each_time() -> None:
    """DC-1: a stored consent has no effect for a self-registered client."""
    document = settings.effective_settings({})
    facts: dict = {
        "trust": "unverified",
        "is_public": False,
        "allowed": ("openid", "email"),
        "settings": document,
    }
    assert not needs_consent(PLAIN, **facts)
    assert needs_consent(PLAIN, **facts, is_unreviewed=True)
