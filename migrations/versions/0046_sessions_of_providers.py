"""Which identity provider a session began at, and its name there.

Revision: 0046
Follows: 0045
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UUID, identifier

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, step in (("sessions", "the sign-in"), ("pending_sign_ins", "the first step")):
        op.add_column(
            name,
            sa.Column(
                "provider_id",
                UUID,
                comment=f"identity provider of {step}; no foreign key, because it may exist longer",
            ),
        )
        op.add_column(name, sa.Column("provider_sid", identifier(255), comment="sid of its ID token"))
    op.create_index("ix_sessions_provider", "sessions", ["organization_id", "provider_id", "provider_sid"])


def downgrade() -> None:
    op.drop_index("ix_sessions_provider", "sessions")
    for name in ("pending_sign_ins", "sessions"):
        op.drop_column(name, "provider_sid")
        op.drop_column(name, "provider_id")
