"""Accounts that nobody vouched for, and wrong codes counted by browser.

Revision: 0023
Follows: 0022
"""

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME, UUID, identifier

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

NO, NONE_YET = sa.text("0"), sa.text("0")
COLUMNS = (
    ("users", "made_unproven", sa.Boolean(), NO, "made by whoever typed the address: what was set up in it ends when a mailed link proves that address"),
    ("known_browsers", "factor_given_at", UTC_DATETIME, None, "when a second factor was last given in it; NULL: never"),
    ("known_browsers", "code_failures", sa.Integer(), NONE_YET, "wrong codes in a row"),
    ("known_browsers", "code_failed_at", UTC_DATETIME, None, "the last of them"),
    ("pending_sign_ins", "known_browser_id", UUID, None, "the known browser of its owner in which it was begun; NULL: another; no foreign key: it outlives that row by minutes"),
    ("second_factor_tries", "total", sa.Integer(), NONE_YET, "wrong codes since the last right one or a month without any, however slowly they came"),
)

USERS = sa.table(
    "users",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("email", sa.String()),
    sa.column("email_canonical", identifier(320)),
    sa.column("email_verified", sa.Boolean()),
    sa.column("made_unproven", sa.Boolean()),
)
ROLES = sa.table(
    "role_assignments",
    sa.column("user_organization_id", identifier(8)),
    sa.column("user_id", UUID),
    sa.column("role", identifier(64)),
    sa.column("created_by", sa.String()),
)
INVITATIONS = sa.table(
    "invitations",
    sa.column("organization_id", identifier(8)),
    sa.column("email_canonical", identifier(320)),
    sa.column("used_at", UTC_DATETIME),
)
EVENTS = sa.table(
    "audit_events",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("action", identifier(64)),
    sa.column("actor_id", identifier(64)),
    sa.column("target_id", identifier(64)),
    sa.column("after", sa.Text()),
)
MADE, INVITED = b"user.created", b"invitation.accepted"
PART = 1000
# From the letters of public ids to those of numbers in base 32.
DIGITS = str.maketrans("0123456789abcdefghjkmnpqrstvwxyz", "0123456789abcdefghijklmnopqrstuv")


def _was_given_a_role() -> sa.Exists:
    # A role that came with the account, by the settings or an invitation, was assigned in the name of its own address.
    return sa.exists().where(
        ROLES.c.user_organization_id == USERS.c.organization_id,
        ROLES.c.user_id == USERS.c.id,
        ROLES.c.role != b"member",
        sa.func.coalesce(ROLES.c.created_by, "") != sa.func.substr(USERS.c.email, 1, 200),
    )


def _has_used_an_invitation() -> sa.Exists:
    return sa.exists().where(
        INVITATIONS.c.organization_id == USERS.c.organization_id,
        INVITATIONS.c.email_canonical == USERS.c.email_canonical,
        INVITATIONS.c.used_at.is_not(None),
    )


def _find_vouched_for(organization_id: bytes, action: bytes) -> Iterator[list[bytes]]:
    """The ids of the users whom the organization's events of the action name, a part at a time, along their index."""
    last = b""
    while True:
        events = op.get_bind().execute(
            sa.select(EVENTS.c.id, EVENTS.c.actor_id, EVENTS.c.target_id, EVENTS.c.after)
            .where(
                EVENTS.c.organization_id == organization_id, EVENTS.c.action == action, EVENTS.c.id > last
            )
            .order_by(EVENTS.c.id)
            .limit(PART)
        ).all()
        if not events:
            return
        last = bytes(events[-1].id)
        if action == INVITED:
            # Such an event outlives the invitation; its target is that one.
            named = [str(json.loads(event.after)["user_id"]) for event in events if event.after]
        else:
            named = [bytes(event.target_id).decode() for event in events if event.actor_id != event.target_id]
        yield [int(name[4:].translate(DIGITS), 32).to_bytes(16) for name in named]


def upgrade() -> None:
    # A value that the database knows lets the release before go on writing, and no table is rebuilt.
    for table, column, kind, default, comment in COLUMNS:
        op.add_column(
            table, sa.Column(column, kind, nullable=default is None, server_default=default, comment=comment)
        )
    # What nobody has proven counts as made by anybody, unless what is kept tells that somebody vouched for it.
    op.execute(
        sa.update(USERS)
        .where(USERS.c.email_verified == sa.false(), ~_was_given_a_role(), ~_has_used_an_invitation())
        .values(made_unproven=sa.true()),
        execution_options={"across_organizations": True},
    )
    # Events name people by the letters of their ids, which no index of users knows: they are read once.
    marked = sa.select(USERS.c.organization_id).where(USERS.c.made_unproven == sa.true()).distinct()
    for organization_id in op.get_bind().scalars(marked, execution_options={"across_organizations": True}).all():
        for action in (MADE, INVITED):
            for ids in _find_vouched_for(organization_id, action):
                op.execute(
                    sa.update(USERS)
                    .where(USERS.c.organization_id == organization_id, USERS.c.id.in_(ids))
                    .values(made_unproven=sa.false())
                )


def downgrade() -> None:
    for table, column, *_ in reversed(COLUMNS):
        op.drop_column(table, column)
