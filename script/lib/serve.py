"""What script/server does once .venv stands: keys, migrations, where to click; then Granian takes this process over.

Granian's main process must not have imported the application: on SIGHUP it forks new workers, and those import the
code of that moment. So the preparation ends with exec.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    options = parse(sys.argv[1:])
    # People click on what is printed, so it names the port that is served; given settings win.
    os.environ.setdefault("GATEHOUSE_BASE_URL", f"http://127.0.0.1:{options.port}")
    sys.path.insert(0, str(ROOT))
    prepare(with_demo=options.demo)
    os.chdir(ROOT)
    os.execv(sys.executable, granian(options))  # noqa: S606 - the program is our own interpreter


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/server", description="Serves Gatehouse.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--threads", type=int, default=8, help="requests at a time in each process (default 8)"
    )
    parser.add_argument(
        "--demo", action="store_true", help="fill the organization acme and print its sign-ins"
    )
    return parser.parse_args(arguments)


def prepare(*, with_demo: bool) -> None:
    from app import config, create_app
    from app.cli.start import before_serving

    try:
        app = create_app()
    except config.UnsafeConfiguration as refusal:
        print(refusal, file=sys.stderr)
        raise SystemExit(config.EXIT_CONFIGURATION) from None
    with app.app_context():
        before_serving(with_demo=with_demo)


def granian(options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws"]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--workers", str(options.workers), "--blocking-threads", str(options.threads)]
    # A worker that dies is replaced; one that ends finishes what it has begun, for at most half a minute.
    command += ["--respawn-failed-workers", "--workers-kill-timeout", "30"]
    command += ["--log-level", "warning", "--working-dir", str(ROOT), "wsgi:app"]
    return command


if __name__ == "__main__":
    main()
