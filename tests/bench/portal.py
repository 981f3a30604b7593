"""``python -m tests.bench.portal``: the server time of every page of the portal, in a large installation.

One organization has one of everything, 200 clients, 1,000,000 tokens, 90 days of counters, and thousands of users,
failed requests and events; 10,000 more have counters of a week. Two workers serve; the times are those of the request
log. The bars: p95 under 50 ms, HTML under 50 KB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from flask import Flask
from sqlalchemy import insert, select

from app.database import FENCE, engines
from app.models.base import Base
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.store.usage_counters import NONE, SPANS, start_of
from app.rules.identifiers import ACCESS_TOKEN, digest, new_id, new_routing_key, new_token
from tests.bench.servers import GATEHOUSE, serving
from tests.factories import Factory, MadeUser
from tests.support.applications import application, environment
from tests.support.databases import Database, MariaDBDatabase, SQLiteDatabase
from tests.support.mariadb import MariaDB
from tests.support.pages import SLUG, Matrix, path_of

BAR_MILLISECONDS, BAR_BYTES = 50.0, 50_000
BASE_URL = "http://127.0.0.1"
_BATCH = 5_000
# Both workers have compiled the template then.
_WARM_UP = 8
_DAYS = 90
# Beside the pages as they are opened first.
_VARIANTS = (
    f"/portal/{SLUG}?period=day",
    f"/portal/{SLUG}?period=month",
    f"/portal/{SLUG}/clients?q=web",
    f"/portal/{SLUG}/logs?view=all",
    f"/portal/{SLUG}/search?q=client",
    f"/portal/{SLUG}/users?q=user7",
    "/portal/root?period=day",
    "/portal/root/organizations?q=copy-77",
)
Row = dict[str, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.portal", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "mariadb"), default="sqlite")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--organizations", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=40, help="requests of each page")
    parser.add_argument("--only", default="", help="a part of the paths to measure")
    parser.add_argument("--keep", type=Path, help="a folder that keeps the database for another run")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    return parser.parse_args()


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.database == "sqlite":
            return _run(SQLiteDatabase(folder / "gatehouse.sqlite3"), folder, options)
        server = MariaDB(Path(temporary) / "mariadb", "--innodb-buffer-pool-size=1G").start()
        try:
            return _run(MariaDBDatabase(server, "portal"), folder, options)
        finally:
            server.stop()


def _run(database: Database, folder: Path, options: argparse.Namespace) -> int:
    plan, keys = folder / "plan.json", folder / "instance"
    if not plan.exists():
        keys.mkdir(mode=0o700)
    logging.disable(logging.INFO)
    app = application(database, keys, BASE_URL)
    if not plan.exists():
        plan.write_text(json.dumps(_fill(app, options)))
    paths, users = json.loads(plan.read_text())
    cookies = _sign_in(app, users)
    visits = [(path, cookies[path.split("/")[2][:4]]) for path in paths if options.only in path]
    env = environment(database, keys, BASE_URL) | {"GATEHOUSE_LOG_LEVEL": "warning"}
    log = folder / "server.log"
    # That of the run before, whose times would count.
    log.unlink(missing_ok=True)
    with serving(GATEHOUSE, env, probe="/healthz", workers=2, threads=8, log=log) as (port, _, _):
        sizes = _visit(port, visits, options.repeats)
        # The last lines may still be on their way.
        time.sleep(1)
    return _report(_times(log), sizes, options)


def _visit(port: int, visits: list[tuple[str, str]], repeats: int) -> dict[str, int]:
    """Request each page this often, and some times before; return the sizes of those that are pages."""
    sizes = {}
    for path, cookie in visits:
        for _ in range(repeats + _WARM_UP):
            # A new connection may be accepted by the other worker.
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers={"Cookie": cookie})
            response = connection.getresponse()
            body = response.read()
            connection.close()
            if response.status != 200 or not response.headers["Content-Type"].startswith("text/html"):
                print(f"left out: {path}: {response.status}")
                break
            sizes[path] = len(body)
    return sizes


def _times(log: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for line in log.read_text().splitlines():
        if '"duration_ms"' in line:
            entry = json.loads(line)
            times[entry["path"]].append(entry["duration_ms"])
    return times


def _report(times: dict[str, list[float]], sizes: dict[str, int], options: argparse.Namespace) -> int:
    rows = []
    for path, size in sizes.items():
        # The log has paths without queries: take the visits of this one.
        found = times[path.partition("?")[0]]
        own, times[path.partition("?")[0]] = (
            found[: options.repeats + _WARM_UP],
            found[options.repeats + _WARM_UP :],
        )
        own = own[_WARM_UP:]
        rows.append((statistics.quantiles(own, n=20)[-1], statistics.median(own), size, path))
    missed = [row for row in rows if row[0] >= BAR_MILLISECONDS or row[2] >= BAR_BYTES]
    print(f"{'p95 ms':>8} {'p50 ms':>8} {'bytes':>7}  page")
    for row in sorted(rows, reverse=True):
        print(
            f"{row[0]:8.1f} {row[1]:8.1f} {row[2]:7}  {row[3]}{'  <-- over the bar' if row in missed else ''}"
        )
    print(f"{len(rows)} pages, {len(missed)} over the bar")
    return int(bool(missed) and options.check)


def _sign_in(app: Flask, users: dict[str, list[str]]) -> dict[str, str]:
    """Return the cookie of a new session of each administrator, so that pages that ask for a fresh one show."""
    make = Factory(app)
    cookies = {}
    for key, (slug, user_id, email) in users.items():
        with app.app_context():
            user = MadeUser(get_organization_by_slug(slug), UUID(user_id), email)
        cookies[key] = f"{make.cookie_name(user.organization)}={make.sign_in(user).token}"
    return cookies


def _fill(app: Flask, options: argparse.Namespace) -> tuple[list[str], dict[str, list[str]]]:
    """Create the installation; return the pages, and who may see those that begin alike."""
    # Of this process alone, which reads and writes rows of every organization.
    FENCE.refuse = lambda words: None  # type: ignore[method-assign]
    make = Factory(app)
    root = make.root()
    matrix = Matrix(app, make)
    acme = matrix.acme.organization
    users = {}
    for organization in (acme, root):
        user = make.user(organization, role="admin")
        users[organization.slug[:4]] = [organization.slug, str(user.id), user.email]
    with app.app_context():
        _fill_tables(acme.id, options)
    paths = [
        path_of(pattern, matrix.acme)
        for endpoint, method, pattern in matrix.pages()
        if endpoint.startswith("portal.") and method == "GET"
    ]
    of_root = [
        path.replace(f"/{SLUG}", "/root", 1)
        for path in paths
        if path.count("/") <= 3 or "instance-limits" in path or "/organizations" in path
    ]
    return [*paths, *of_root, *_VARIANTS], users


def _fill_tables(here: str, options: argparse.Namespace) -> None:
    chance = random.Random(1)
    now = datetime.now(UTC)
    clients = _copies(here, "clients", options.clients, name=lambda number: f"Web client {number}")
    [secret] = _copies(here, "client_credentials", 1)
    users = _copies(
        here,
        "users",
        options.users,
        email=lambda number: f"user{number}@acme.example",
        email_canonical=lambda number: f"user{number}@acme.example",
    )
    token = {"scope": "openid", "audience": "", "issued_at": now, "expires_at": now + timedelta(hours=12)}
    own = {"organization_id": here, "client_id": secret["client_id"], "credential_id": secret["id"]}
    _insert(
        "access_tokens",
        (
            {**own, **token, "id": new_id(), "digest": digest(new_token(ACCESS_TOKEN, here))}
            for _ in range(options.tokens)
        ),
    )
    for table, column in (("failed_requests", "request_id"), ("audit_events", "request_id")):
        _copies(here, table, 20_000, **{column: lambda number: f"req_{number}"})
    ids = [row["id"] for row in clients]
    _insert("usage_counters", _counters(here, ids, [row["id"] for row in users], now, chance))
    organizations = _copies(
        None, "organizations", options.organizations, slug=lambda number: f"copy-{number}"
    )
    _insert("usage_counters", _counters_of_others([row["id"] for row in organizations], now, chance))
    with engines()[0].begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("ANALYZE")


def _copies(here: str | None, table_name: str, count: int, **changes: Any) -> list[Row]:
    """Insert this number of copies of a row of the table, each with an id of its own and these changes."""
    table = Base.metadata.tables[table_name]
    condition = table.c.organization_id == here if here else table.c.slug == SLUG
    with engines()[0].connect() as connection:
        found = connection.execute(select(table).where(condition).order_by(table.c.id)).mappings().first()
    assert found is not None, table_name
    if count == 1:
        return [dict(found)]
    rows = [
        {
            **found,
            "id": new_id() if here else new_routing_key(),
            **{column: make(number) for column, make in changes.items() if column in table.c},
        }
        for number in range(count)
    ]
    _insert(table_name, rows)
    return rows


def _counters(
    here: str, clients: list[Any], users: list[Any], now: datetime, chance: random.Random
) -> Iterator[Row]:
    """Return the counters of 90 days: each client is busy one hour in six, each user one day in ten."""
    facts = (
        ("tokens", "authorization_code"), ("tokens", "refresh_token"), ("tokens", "client_credentials"),
        ("requests", "token:succeeded"), ("requests", "token:failed"), ("sign_ins", "password"),
        ("failed", "redirect_uri_not_registered"), ("failed", "secret_wrong"), ("failed", "code_expired"),
    )  # fmt: skip
    for span, length in SPANS.items():
        last = start_of(span, now)
        for back in range(timedelta(days=_DAYS) // length):
            row = {
                "organization_id": here,
                "span": span,
                "starts_at": last - back * length,
                "subject_id": NONE,
            }
            for metric, detail in facts:
                yield row | {"client_id": NONE, "metric": metric, "detail": detail, "count": 400}
            share = 1 / 6 if span == "hour" else 1.0
            for client in clients:
                if chance.random() < share:
                    for metric, detail in facts[1:5]:
                        yield row | {"client_id": client, "metric": metric, "detail": detail, "count": 2}
            for user in chance.sample(users, len(users) // (10 if span == "day" else 100)):
                yield row | {
                    "client_id": NONE, "metric": "users", "detail": "", "subject_id": user, "count": 1,
                }  # fmt: skip


def _counters_of_others(organizations: list[str], now: datetime, chance: random.Random) -> Iterator[Row]:
    """Return the counters by day of the last week."""
    for back in range(8):
        at = start_of("day", now) - timedelta(days=back)
        for one in organizations:
            row = {
                "organization_id": one,
                "client_id": NONE,
                "span": "day",
                "starts_at": at,
                "subject_id": NONE,
            }
            for metric in ("tokens", "sign_ins", "failed"):
                yield row | {"metric": metric, "detail": "x", "count": chance.randrange(1, 1000)}


def _insert(name: str, rows: Iterable[Row]) -> None:
    statement = insert(Base.metadata.tables[name])
    waiting = iter(rows)
    while batch := list(islice(waiting, _BATCH)):
        with engines()[0].begin() as connection:
            connection.execute(statement, batch)


if __name__ == "__main__":
    sys.exit(main())
