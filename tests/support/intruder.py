"""An attacker with write access to the database but without keys, against the audit hash chain."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Table, delete, insert, select, update

from app.extensions import db
from app.models.base import Base
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store.transactions import transaction

EVENTS, LINKS, CHAINS = (
    Base.metadata.tables[name] for name in ("audit_events", "audit_links", "audit_chains")
)
Rows = dict[Table, list[dict[str, Any]]]


@transaction
def write(*statements: Any) -> None:
    for statement in statements:
        db.session.execute(statement)


def snapshot(*organizations: OrganizationSnapshot) -> Rows:
    keys = [organization.id for organization in organizations]
    found = {
        table: [
            dict(row._mapping)
            for row in db.session.execute(select(table).where(table.c.organization_id.in_(keys)))
        ]
        for table in (EVENTS, LINKS, CHAINS)
    }
    db.session.remove()
    return found


def put_back(rows: Rows) -> None:
    keys = {row["organization_id"] for row in rows[CHAINS]}
    write(
        *(delete(table).where(table.c.organization_id.in_(keys)) for table in rows),
        *(insert(table).values(found) for table, found in rows.items()),
    )


class Intruder:
    """Change the log, the chain or both, as the seed decides."""

    def __init__(
        self, acme: OrganizationSnapshot, globex: OrganizationSnapshot, rows: Rows, seed: int
    ) -> None:
        self.acme, self.globex, self.rows, self.chance = acme, globex, rows, random.Random(seed)

    def mutate(self) -> None:
        kinds: list[Callable[[], None]] = [
            *(
                self.edit,
                self.delete,
                self.delete_with_link,
                self.insert,
                self.insert_with_link,
                self.reorder,
            ),
            *(
                self.truncate,
                self.truncate_and_set_back,
                self.swap,
                self.move,
                self.edit_link,
                self.forget_beginning,
            ),
        ]
        self.chance.choice(kinds)()

    def one(self, organization: OrganizationSnapshot | None = None) -> dict[str, Any]:
        here = (organization or self.acme).id
        return self.chance.choice([row for row in self.rows[EVENTS] if row["organization_id"] == here])

    def links(self) -> list[dict[str, Any]]:
        found = [row for row in self.rows[LINKS] if row["organization_id"] == self.acme.id]
        return sorted(found, key=lambda row: row["position"])

    def edit(self) -> None:
        row = self.one()
        column = self.chance.choice(
            [column.name for column in EVENTS.c if column.name not in {"organization_id", "id"}]
        )
        values = {"at": row["at"] + timedelta(microseconds=1), "before": {"x": 1}, "after": {"name": "e"}}
        write(update(EVENTS).where(*self.is_row(EVENTS, row)).values({column: values.get(column, "other")}))

    def delete(self) -> None:
        write(delete(EVENTS).where(*self.is_row(EVENTS, self.one())))

    def delete_with_link(self) -> None:
        row = self.one()
        write(*(delete(table).where(*self.is_row(table, row)) for table in (EVENTS, LINKS)))

    def insert(self) -> None:
        write(insert(EVENTS).values({**self.one(), "id": self.new_id()}))

    def insert_with_link(self) -> None:
        last = self.links()[-1]
        row = {**self.one(), "id": self.new_id()}
        link = {**last, "id": row["id"], "position": last["position"] + 1, "mac": self.chance.randbytes(32)}
        own = CHAINS.c.organization_id == self.acme.id
        write(
            insert(EVENTS).values(row),
            insert(LINKS).values(link),
            update(CHAINS).where(own).values(length=link["position"], head=link["mac"]),
        )

    def reorder(self) -> None:
        one, other = self.chance.sample(self.links(), 2)
        write(
            delete(LINKS).where(*self.is_row(LINKS, one)),
            delete(LINKS).where(*self.is_row(LINKS, other)),
            insert(LINKS).values([{**one, "id": other["id"]}, {**other, "id": one["id"]}]),
        )

    def truncate(self) -> list[dict[str, Any]]:
        gone = self.links()[-self.chance.randint(1, 5) :]
        write(*(delete(table).where(*self.is_row(table, row)) for row in gone for table in (EVENTS, LINKS)))
        return gone

    def truncate_and_set_back(self) -> None:
        gone = self.truncate()
        last = self.links()[-len(gone) - 1]
        own = CHAINS.c.organization_id == self.acme.id
        write(update(CHAINS).where(own).values(length=last["position"], head=last["mac"]))

    def swap(self) -> None:
        one, other = self.one(self.acme), self.one(self.globex)
        kept = {"organization_id", "id"}
        for here, there in ((one, other), (other, one)):
            values = {name: value for name, value in there.items() if name not in kept}
            write(update(EVENTS).where(*self.is_row(EVENTS, here)).values(values))

    def move(self) -> None:
        write(update(EVENTS).where(*self.is_row(EVENTS, self.one())).values(organization_id=self.globex.id))

    def edit_link(self) -> None:
        link = self.chance.choice(self.links())
        write(update(LINKS).where(*self.is_row(LINKS, link)).values(mac=self.chance.randbytes(32)))

    def forget_beginning(self) -> None:
        first = self.links()[: self.chance.randint(1, 5)]
        own = CHAINS.c.organization_id == self.acme.id
        write(
            *(delete(table).where(*self.is_row(table, row)) for row in first for table in (EVENTS, LINKS)),
            update(CHAINS).where(own).values(removed=first[-1]["position"], anchor=first[-1]["mac"]),
        )

    def new_id(self) -> UUID:
        return UUID(int=self.one()["id"].int ^ self.chance.getrandbits(60))

    def is_row(self, table: Table, row: dict[str, Any]) -> tuple[Any, Any]:
        return table.c.organization_id == row["organization_id"], table.c.id == row["id"]
