"""One's own profile: changed where allowed, as a whole or not at all, and audited."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.directory.users import get_user
from app.operations.store.transactions import transaction
from app.operations.users import own_profile
from app.operations.users.own_profile import change_profile
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput
from tests.oauth.conftest import audited
from tests.rules.users.test_profile import WHOLE
from tests.support.cases import each
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization()


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme)


def test_profile_is_replaced_and_audited(make: Any, acme: Any, ada: Any, database: Database) -> None:
    actor = make.actor(acme, "none", user=ada)
    before = get_user(acme.id, ada.id)
    view = change_profile(actor, name=" Ada King ", profile=WHOLE)
    assert (view.name, view.profile, view.version) == ("Ada King", WHOLE, before.version + 1)
    assert view.claims.updated_at > before.claims.updated_at
    assert view.claims.address == WHOLE["address"]
    view = change_profile(actor, name="Ada King", profile={"nickname": "ada"})
    assert view.profile == {"nickname": "ada"}
    assert audited(database, "user.updated") == 2
    assert change_profile(actor, name="Ada King", profile={"nickname": "ada"}).version == view.version
    assert audited(database, "user.updated") == 2, "nothing differed"


def test_change_is_rejected_where_not_allowed(make: Any, ada: Any, acme: Any) -> None:
    closed = make.organization(settings={"user_permissions": {"members_can_edit_profile": False}})
    eve = make.user(closed)
    with pytest.raises(Forbidden):
        change_profile(make.actor(closed, "none", user=eve), name="Eve", profile={})
    assert change_profile(make.actor(closed, "users:write", user=eve), name="Eve", profile={}).name == "Eve"
    with pytest.raises(Forbidden):
        change_profile(Actor.system(acme.id), name="Ada", profile={})


@each("name", ["", "   ", "x" * 101, "A\u202eB", "A\nB", "A\x00"])
def test_misleading_name_is_rejected_and_nothing_is_written(
    make: Any, acme: Any, ada: Any, database: Database, name: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        change_profile(make.actor(acme, "none", user=ada), name=name, profile={"locale": "?"})
    assert [error.field for error in refusal.value.errors] == ["name", "locale"]
    assert get_user(acme.id, ada.id).profile == {}
    assert audited(database, "user.updated") == 0


def test_concurrent_change_is_a_conflict(
    make: Any, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = own_profile.get_user

    @transaction
    def somebody_else() -> None:
        db.session.execute(update(User).where(User.id == ada.id).values(version=User.version + 1))

    def read_then_changed(organization_id: str, user_id: Any) -> Any:
        view = real(organization_id, user_id)
        somebody_else()
        return view

    monkeypatch.setattr(own_profile, "get_user", read_then_changed)
    with pytest.raises(Conflict):
        change_profile(make.actor(acme, "none", user=ada), name="Ada King", profile={})
