"""Serve an organization again whose cell is lost for good, from the rows that the cell before it still has.

For those rows this is what restoring a backup is: whatever the lost cell did is missing. So what was issued before is
invalid, and what ended since the move ends again as far as an audit export says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.operations.maintenance.decided_moves import find_decided, require_own_rows, serve_again
from app.operations.maintenance.exported_events import end_again, read_export
from app.operations.maintenance.restore import RestoreReport, cutoffs_of
from app.operations.store import clock
from app.rules.actor import Actor


def recover_organization(
    actor: Actor,
    slug: str,
    cell: str,
    exports: Iterable[Iterable[str]] = (),
    *,
    block_secrets: bool = True,
    reset_passwords: bool = True,
) -> RestoreReport:
    """Serve an organization here again that was given to a cell which will never serve again.

    Nothing here can tell whether that is so: while the cell serves, both would. Tokens, sessions, codes, links and the
    like from before are invalid. With ``block_secrets``, client secrets do not work until they are confirmed, and with
    ``reset_passwords``, users choose new passwords. ``exports`` are audit exports of the lost cell. Raises NotFound,
    Conflict if it was not given to the cell or its rows are purged, and InvalidInput if an export cannot be read.
    Audit: ``organization.resumed``, and of each operation.
    """
    actor.require("instance:write")
    events = [event for lines in exports for event in read_export(lines)]
    organization = find_decided(slug, cell)
    require_own_rows(organization)
    report = RestoreReport(
        clock.now(), organizations=1, blocks_secrets=block_secrets, resets_passwords=reset_passwords
    )
    serve_again(actor, organization, cutoffs=cutoffs_of(report))
    own = [event for event in events if event.organization == slug]
    report.ended_again, report.failed, report.to_review = end_again(own)
    return report
