"""Exports of organizations: every table and column is either exported or excluded explicitly."""

from __future__ import annotations

from app.models import Base
from app.models.organization import Organization
from app.operations.maintenance.archive import EXPORTED_TABLES, OMITTED_TABLES
from app.operations.maintenance.transfer import COLUMNS


def test_export_covers_every_table_and_column() -> None:
    tables = {table.name for table in Base.metadata.sorted_tables if "organization_id" in table.c}
    assert tables == EXPORTED_TABLES | set(OMITTED_TABLES) and not EXPORTED_TABLES & set(OMITTED_TABLES)
    made_anew = {"is_root", "data_key", "updated_at", "deleted_at", "purge_at", "moving_until", "moved_to"}
    assert set(Organization.__table__.columns.keys()) == set(COLUMNS) | made_anew
    for table in Base.metadata.sorted_tables:
        if table.name in EXPORTED_TABLES:
            referred = {key.referred_table.name for key in table.foreign_key_constraints}
            assert referred <= EXPORTED_TABLES | {"organizations"}, table.name
