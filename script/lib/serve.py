"""What script/server does once .venv stands: keys, migrations, where to click; then Granian serves.

This process never imports the application, except in a child that prepares a first start: on SIGHUP it forks new
workers, and those import the code of that moment. It also makes the usual start one import shorter. The libraries
under the application it does import, once for all workers.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from beforehand import compile_code, load_libraries
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server
from standing import stands

ROOT = Path(__file__).resolve().parents[2]
# A worker that is told to end finishes the requests it has begun, for at most so long.
GRACE_SECONDS = 30
# Between the start of a new worker and the end of the one before, at a reload; at least.
SECONDS_BETWEEN = 3.5
# The code of a reload makes an application within so long, or is not taken.
SECONDS_TO_LOAD = 60.0


class Supervisor(Server):
    """Granian's main process, which keeps the workers that serve when the code to reload does not even load.

    It would start new workers, end the old ones a few seconds later without looking, and then end itself. How long a
    worker takes to stand is known from the try, so that on a busy machine nobody ends before the successor serves.
    """

    def signal_handler_reload(self, *args: Any, **kwargs: Any) -> None:
        begun = time.monotonic()
        # A signal to end is taken while it is tried, but acted on after: so the try ends with it.
        if loads(lambda: self.interrupt_signal):
            self.respawn_interval = max(SECONDS_BETWEEN, 3 * (time.monotonic() - begun))
            super().signal_handler_reload(*args, **kwargs)
        else:
            say("Not reloaded: the code as it is now does not start. The workers of before go on serving.")


def main() -> None:
    options = parse(sys.argv[1:])
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # People click on what is printed, so it names the port that is served; a setting that was given wins.
    os.environ.setdefault("GATEHOUSE_BASE_URL", f"http://127.0.0.1:{options.port}")
    config = read_configuration()
    compile_code(ROOT)
    load_libraries()
    if options.demo or not stands(
        config.database_url, ROOT / "migrations" / "versions", partial(open_data_key, config.master_key)
    ):
        in_child(prepare, options.demo)
    say(f"Gatehouse serves {config.base_url}  (portal: {config.base_url}/portal)")
    let_workers_end_at_once()
    Supervisor(
        "wsgi:app",
        address=options.host,
        port=options.port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        websockets=False,
        workers=options.workers,
        blocking_threads=options.threads,
        respawn_failed_workers=True,
        workers_kill_timeout=GRACE_SECONDS,
        # Its only warning is that there are more threads than cores, which is meant: they wait for commits.
        log_level=LogLevels.error,
    ).serve(target_loader=load_application, wrap_loader=False)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/server", description="Serves Gatehouse.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--threads",
        type=int,
        default=8,
        help="requests at a time in each process (default 8); files may hold 4 of them",
    )
    parser.add_argument(
        "--demo", action="store_true", help="fill the organization acme and print its sign-ins"
    )
    return parser.parse_args(arguments)


def read_configuration() -> Any:
    """The checked settings, with keys made at the first start; an unsafe one ends the start with its message."""
    module = load_package(ROOT / "app" / "config")
    try:
        return module.load()
    except module.UnsafeConfiguration as refusal:
        say(str(refusal))
        raise


def load_package(folder: Path) -> ModuleType:
    """One package of the application without the application around it; it imports its own modules alone."""
    return load_file("gatehouse_config", folder / "__init__.py", submodule_search_locations=[str(folder)])


def load_file(name: str, path: Path, **options: Any) -> ModuleType:
    """One module of the application, under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path, **options)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses and its modules look it up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def open_data_key(master_key: bytes, organization_id: str, wrapped: bytes) -> None:
    """Raises when another master key wrapped it: the workers must not begin with this one (KY-6)."""
    sealing = load_file("gatehouse_sealing", ROOT / "app" / "rules" / "sealing.py")
    sealing.unwrap_data_key(master_key, organization_id, wrapped)


def prepare(with_demo: bool) -> None:
    """The schema is the newest, and somebody is told where to click."""
    from app import create_app
    from app.cli.start import before_serving

    with create_app().app_context():
        before_serving(with_demo=with_demo)


def loads(is_told_to_end: Callable[[], bool] = lambda: False) -> bool:
    """Whether the code of this moment makes an application, tried in a process of its own; why not is printed.

    No longer than SECONDS_TO_LOAD: nobody respawns workers meanwhile. Not either once ``is_told_to_end``.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # As the command line does: no thread begins to work.
            os.environ["FLASK_RUN_FROM_CLI"] = "true"
            load_application()
            status = 0
        except BaseException:  # noqa: BLE001  # whatever it is, it is printed and the answer is no
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            # Nothing of the main process is tidied up from here: its workers are not this one's.
            os._exit(status)
    status_of_child = ended(child, SECONDS_TO_LOAD, is_told_to_end)
    if status_of_child is not None:
        return status_of_child == 0
    os.kill(child, signal.SIGKILL)
    # What waits for a disk dies only when that answers.
    ended(child, 1)
    if not is_told_to_end():
        say(f"The code as it is now has not started within {SECONDS_TO_LOAD:g} seconds: it hangs, or waits.")
    return False


def ended(child: int, seconds: float, is_told_to_end: Callable[[], bool] = lambda: False) -> int | None:
    """How the child ended, as ``os.waitpid`` says it; None when it has not within so long, or nobody waits for it."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if is_told_to_end() or time.monotonic() >= until:
            return None
        time.sleep(0.02)


def in_child(work: Any, *arguments: Any) -> None:
    """The work was done by a process of its own; its failure is ours."""
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        except KeyboardInterrupt:
            os._exit(130)
        except SystemExit as end:
            say(str(end))
            os._exit(end.code if isinstance(end.code, int) else 1)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(os.waitstatus_to_exitcode(status))


def let_workers_end_at_once() -> None:
    """A worker that is told to end before Granian's handlers stand in it ends.

    From its first moment it would have the main process's handlers, which swallow the signal, and would then serve
    until it is killed. What is sent while it is being forked waits until it has its own.
    """
    told = (signal.SIGTERM, signal.SIGINT)

    def be_mortal() -> None:
        for number in told:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, told)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, told),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, told),
        after_in_child=be_mortal,
    )


def load_application() -> Any:
    """The WSGI application, in a worker that has just begun."""
    from wsgi import app

    return app


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
