"""Serve Gatehouse after .venv is installed: create keys, migrate, print the setup link, and run Granian.

This process never imports the application, except in a child that prepares the first start: on SIGHUP it forks new
workers, and those import the code as it is then. It does import the libraries, once for all workers.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server
from installation import is_ready

ROOT = Path(__file__).resolve().parents[2]
# Seconds that a stopping worker has to finish its requests.
GRACE_SECONDS = 30
# At a reload, the minimum time between the start of a new worker and the stop of the one it replaces.
RESPAWN_SECONDS = 3.5
# New code must have loaded within this time, or it is not used.
LOAD_SECONDS = 60.0


def main() -> None:
    options = parse(sys.argv[1:])
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # The printed URL must work, so its port is the served one. A setting in the environment has priority.
    os.environ.setdefault("GATEHOUSE_BASE_URL", f"http://127.0.0.1:{options.port}")
    config = read_configuration()
    compile_code()
    if "preload" not in config.disabled_fast_paths:
        load_file("gatehouse_preload", ROOT / "app" / "fast_path" / "preload.py").load_libraries()
    if options.demo or not is_ready(
        config.database_url, ROOT / "migrations" / "versions", partial(open_data_key, config.master_key)
    ):
        run_in_child(prepare, options.demo)
    say(f"Gatehouse is running at {config.base_url} (portal: {config.base_url}/portal)")
    stop_starting_workers_at_once()
    server = Server(
        "wsgi:app",
        address=options.host,
        port=options.port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        websockets=False,
        workers=options.workers,
        blocking_threads=options.threads + config.LATE_THREADS,
        respawn_failed_workers=True,
        respawn_interval=RESPAWN_SECONDS,
        workers_kill_timeout=GRACE_SECONDS,
        # Its only warning is that there are more threads than cores, which is intended: they wait for the database.
        log_level=LogLevels.error,
    )
    server.on_startup(partial(check_code_before_reload, server))
    server.serve(target_loader=load_application, wrap_loader=False)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/server", description="Run Gatehouse.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--threads", type=int, default=8, help="concurrent requests in each process (default 8)"
    )
    parser.add_argument(
        "--demo", action="store_true", help="create the demo organization acme and print its sign-ins"
    )
    return parser.parse_args(arguments)


def read_configuration() -> Any:
    """Return the checked settings; the first start creates the keys. An unsafe setting ends the start."""
    module = load_file(
        "gatehouse_config",
        ROOT / "app" / "config" / "__init__.py",
        submodule_search_locations=[str(ROOT / "app" / "config")],
    )
    try:
        return module.load()
    except module.UnsafeConfiguration as error:
        say(str(error))
        raise


def load_file(name: str, path: Path, **options: Any) -> ModuleType:
    """Import one module of the application under another name, without the application around it."""
    spec = importlib.util.spec_from_file_location(name, path, **options)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses and submodules look it up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_code() -> None:
    """Compile the application once where byte code can be written, instead of once in each worker."""
    if os.access(ROOT / "app", os.W_OK):
        compileall.compile_dir(ROOT / "app", quiet=2)
        compileall.compile_file(ROOT / "wsgi.py", quiet=2)


def open_data_key(master_key: bytes, organization_id: str, wrapped: bytes) -> None:
    """Raise when the data key was wrapped by another master key: workers must not start with this one (KY-6)."""
    sealing = load_file("gatehouse_sealing", ROOT / "app" / "rules" / "sealing.py")
    sealing.unwrap_data_key(master_key, organization_id, wrapped)


def prepare(with_demo: bool) -> None:
    """Migrate the schema, and print the setup link or the demo's sign-ins."""
    from app import create_app
    from app.cli.maintenance import before_serving

    with create_app().app_context():
        before_serving(with_demo=with_demo)


def run_in_child(work: Any, *arguments: Any) -> None:
    """Run the function in a process of its own; end this one if it fails."""
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


def check_code_before_reload(server: Server) -> None:
    """Pass SIGHUP on to Granian only when the new code starts; called once Granian's signal handlers are installed.

    Granian would start new workers and end the old ones a few seconds later, whether or not the new ones serve.
    """
    reload, is_stopping = signal.getsignal(signal.SIGHUP), False

    def check_and_reload(number: int, frame: Any) -> None:
        started = time.monotonic()
        if starts(lambda: is_stopping):
            # On a busy machine a worker takes longer to start than usual.
            server.respawn_interval = max(RESPAWN_SECONDS, 2 * (time.monotonic() - started))
            reload(number, frame)  # type: ignore[operator, misc]
        else:
            say("Not reloaded: the new code does not start. The workers continue with the code they have.")

    def stop(previous: Any, number: int, frame: Any) -> None:
        nonlocal is_stopping
        is_stopping = True
        previous(number, frame)

    signal.signal(signal.SIGHUP, check_and_reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(stop, signal.getsignal(number)))


def starts(is_stopping: Any) -> bool:
    """Return whether the code as it is now creates an application within LOAD_SECONDS; tried in another process."""
    # As on the command line, no background thread is started.
    environ = os.environ | {"FLASK_RUN_FROM_CLI": "true"}
    check = subprocess.Popen([sys.executable, "-c", "from wsgi import app"], cwd=ROOT, env=environ)
    deadline = time.monotonic() + LOAD_SECONDS
    while check.poll() is None:
        if is_stopping() or time.monotonic() > deadline:
            check.kill()
            check.wait()
            say(f"The new code was stopped before it had started; it has {LOAD_SECONDS:g} seconds.")
            return False
        time.sleep(0.02)
    return check.returncode == 0


def stop_starting_workers_at_once() -> None:
    """Let a worker that is stopped before it has installed Granian's signal handlers end at once.

    It inherits the main process's handlers, which would only set a flag, and would serve until it is killed. A signal
    that arrives during the fork is delivered once the worker has handlers of its own.
    """
    stopping = (signal.SIGTERM, signal.SIGINT)

    def reset_handlers() -> None:
        for number in stopping:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, stopping),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping),
        after_in_child=reset_handlers,
    )


def load_application() -> Any:
    """Return the WSGI application, in a new worker."""
    from wsgi import app

    return app


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
