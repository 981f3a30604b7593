"""Deleted users: what is erased, and that their names are free."""

from __future__ import annotations

from sqlalchemy import update

from app.extensions import db
from app.models.identity_provider import LinkedIdentity
from app.models.user import User
from app.operations.maintenance.janitor import purge_expired
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.scim.conftest import Directory
from tests.scim.test_users import GRACE, user_of


def test_deleted_user_is_erased_and_their_names_are_free(directory: Directory) -> None:
    created = directory.create("ghopper", **GRACE)
    directory.send("DELETE", f"/Users/{created['id']}", status=204)
    directory.send("DELETE", f"/Users/{created['id']}", status=404)
    directory.send("GET", f"/Users/{created['id']}", status=404)
    erased = user_of(directory, created)
    assert (erased.status, erased.email, erased.external_id, erased.user_name) == ("deleted", "", None, None)
    again = directory.create("ghopper", **GRACE)
    assert again["id"] != created["id"]


def test_what_release_0_1_left_of_a_deleted_user_is_erased(directory: Directory) -> None:
    """It knows no identity providers, and may run beside this one during an upgrade."""
    created = directory.create("ghopper", **GRACE)
    user = user_of(directory, created)
    directory.send("DELETE", f"/Users/{created['id']}", status=204)
    left = {name: getattr(user, name) for name in ("provisioned_by", "external_id", "user_name")}
    left["attributes"] = {"employee_number": "4711"}
    keys = {"organization_id": user.organization_id, "id": user.id, "user_id": user.id}
    link = {"provider_id": directory.record.id, "subject": "00u1", "created_at": user.created_at}

    @transaction
    def restore_rows() -> None:
        db.session.execute(update(User).where(User.id == user.id).values(left))
        db.session.add(LinkedIdentity(**keys, **link))

    with directory.app.app_context():
        restore_rows()
        directory.create("ghopper", **GRACE, status=409)
        purge_expired(Actor.system("", "janitor"), pause=0)
    assert directory.rows(LinkedIdentity) == []
    assert [row.attributes for row in directory.rows(User) if row.id == user.id] == [None]
    directory.create("ghopper", **GRACE)
