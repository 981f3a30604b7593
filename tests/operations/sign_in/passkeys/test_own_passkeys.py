"""One's own passkeys: renaming and removing them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.models.user import User
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import second_factors
from app.operations.sign_in.factor_enrollment import SecondFactorRequired
from app.operations.sign_in.identity_providers import store_identity_provider
from app.operations.sign_in.passkey_registration import (
    LastSignInMethod,
    get_passkey,
    list_passkeys,
    remove_passkey,
    rename_passkey,
)
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sign_in import SignedIn
from app.rules.errors import InvalidInput, NotFound
from tests.oauth.conftest import audited
from tests.operations.sign_in.passkeys.conftest import registered, sign_in
from tests.scim.conftest import FIELDS
from tests.support.authenticator import set_rows
from tests.support.security_key import Authenticator
from tests.support.world_rows import linked_to

pytestmark = pytest.mark.usefixtures("context")


def test_passkey_is_renamed(actor: Any, key: Any, database: Any) -> None:
    [passkey] = list_passkeys(actor)
    rename_passkey(actor, passkey.public_id, "  Blue\tkey ")
    assert list_passkeys(actor)[0].name == "Blue key"
    rename_passkey(actor, passkey.public_id, "Blue key")
    assert audited(database, "passkey.renamed") == 1
    with pytest.raises(InvalidInput):
        rename_passkey(actor, passkey.public_id, " ")


def test_removed_passkey_cannot_sign_in(
    actor: Any, acme: Any, key: Any, answer_of: Any, database: Any
) -> None:
    """Recovery codes are deleted with the last factor."""
    assert second_factors.count_recovery_codes(acme.id, actor.user_id) == 10
    answer = answer_of(key)
    remove_passkey(actor, list_passkeys(actor)[0].public_id)
    assert list_passkeys(actor) == ()
    assert sign_in(acme, answer).reason == "unknown"
    assert second_factors.count_recovery_codes(acme.id, actor.user_id) == 0
    assert audited(database, "passkey.removed") == audited(database, "second_factor.removed") == 1


def test_removing_a_passkey_requires_fresh_sign_in_with_the_factor(make: Any, actor: Any, key: Any) -> None:
    [passkey] = list_passkeys(actor)
    with pytest.raises(FreshSignInRequired):
        remove_passkey(replace(actor, amr=("pwd",)), passkey.public_id)
    assert len(list_passkeys(actor)) == 1


def test_last_passkey_cannot_be_removed_where_a_factor_is_required(
    make: Any, acme: Any, actor: Any, key: Any
) -> None:
    mfa = {"policy": "required", "grace_period_seconds": 0}
    update_settings(make.system(acme), acme.slug, {"authentication": {"mfa": mfa}})
    with pytest.raises(SecondFactorRequired):
        remove_passkey(actor, list_passkeys(actor)[0].public_id)
    assert len(list_passkeys(actor)) == 1
    registered(actor, Authenticator())
    remove_passkey(actor, list_passkeys(actor)[0].public_id)
    assert len(list_passkeys(actor)) == 1


def test_last_passkey_cannot_be_removed_where_passwords_are_disabled(
    make: Any, acme: Any, actor: Any, key: Any, answer_of: Any
) -> None:
    """No user can lock themselves out, including the last administrator."""
    update_settings(make.system(acme), acme.slug, {"authentication": {"password": {"enabled": False}}})
    with pytest.raises(LastSignInMethod):
        remove_passkey(actor, list_passkeys(actor)[0].public_id)
    assert isinstance(sign_in(acme, answer_of(key)), SignedIn)
    registered(actor, Authenticator())
    remove_passkey(actor, list_passkeys(actor)[1].public_id)
    with pytest.raises(LastSignInMethod):
        remove_passkey(actor, list_passkeys(actor)[0].public_id)
    update_settings(make.system(acme), acme.slug, {"authentication": {"password": {"enabled": True}}})
    remove_passkey(actor, list_passkeys(actor)[0].public_id)


def test_passkey_is_the_last_way_in_of_whoever_has_neither_password_nor_linked_account(
    make: Any, acme: Any, actor: Any, key: Any
) -> None:
    """Also where passwords are enabled: nothing could set one, as there is no mail server."""
    set_rows(User, password_hash=None)
    with pytest.raises(LastSignInMethod):
        remove_passkey(actor, list_passkeys(actor)[0].public_id)
    provider = store_identity_provider(make.system(acme), dict(FIELDS))
    linked_to(provider, actor.user_id, "248289761001")
    remove_passkey(actor, list_passkeys(actor)[0].public_id)


def test_passkey_of_another_user_is_not_found(make: Any, acme: Any, actor: Any, key: Any) -> None:
    """Another user's, another organization's and a nonexistent one give the same response."""
    globex = make.organization()
    [passkey] = list_passkeys(actor)
    said = set()
    for who, name in (
        (make.actor(acme, user=make.user(acme)), passkey.public_id),
        (make.actor(globex, user=make.user(globex)), passkey.public_id),
        (actor, "pky_" + "0" * 26),
        (actor, "nothing"),
    ):
        for act in (get_passkey, remove_passkey, lambda a, p: rename_passkey(a, p, "Mine")):
            with pytest.raises(NotFound) as refused:
                act(who, name)
            said.add(refused.value.description)
    assert said == {"There is no such passkey."}
    assert list_passkeys(actor)[0].name == passkey.name
