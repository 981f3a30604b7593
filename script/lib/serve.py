"""Serve Gatehouse after .venv is installed: create keys, migrate, print the setup link, and run Granian.

This process never imports the application, except in a child that prepares the first start: on SIGHUP it forks new
workers, and those import the code as it is then. It does import the libraries, once for all workers.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server
from installation import is_ready

# Links are kept: after an upgrade that of an installed release leads to the new one, which a reload then uses.
ROOT = Path(__file__).absolute().parents[2]
# Seconds that a stopping worker has to finish its requests.
GRACE_SECONDS = 30
# How long a stopping worker, which gets no more connections, waits for the requests of those it has.
FIRST_BYTES_SECONDS = 0.2
STOPPING = (signal.SIGTERM, signal.SIGINT)
# At a reload, the minimum time between the start of a new worker and the stop of the one it replaces.
RESPAWN_SECONDS = 3.5
# New code must have loaded within this time, or it is not used.
LOAD_SECONDS = 60.0
# How long to wait for a port.
PORT_SECONDS = 5.0
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
PR_SET_PDEATHSIG = 1  # prctl(2)
SO_ATTACH_REUSEPORT_CBPF = 51  # socket(7)
BPF_RET = 6  # linux/bpf_common.h
# The pause before the workers start again after they ended in a row, and how long they must have run for the shortest.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS, STEADY_SECONDS = 0.5, 30.0, 60.0


def main() -> None:
    options = parse(sys.argv[1:])
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # The printed URL must work, so its port is the served one. A setting in the environment has priority.
    os.environ.setdefault("GATEHOUSE_BASE_URL", f"http://127.0.0.1:{options.port}")
    config, find_fault = read_configuration()
    if options.demo:
        check_demo(options, config)
    require_free_port(options.host, options.port, "--port")
    compile_code()
    if "preload" not in config.disabled_fast_paths:
        load_file("gatehouse_preload", ROOT / "app" / "fast_path" / "preload.py").load_libraries()
    ready = is_ready(
        config.database_url,
        ROOT / "migrations" / "versions",
        partial(open_data_key, config.master_key),
        config.instance,
    )
    check_folders(config, find_fault, ready)
    demo_app = None
    if options.demo or not ready:
        app_url = f"http://127.0.0.1:{options.demo_port}" if options.demo else None
        environment = run_in_child(prepare, app_url)
        if app_url:
            demo_app = start_demo_app(options.demo_port, environment)
            say(f"The demo app is running at {app_url}. Open it and sign in as one of the users above.")
    say(f"Gatehouse is running at {config.base_url} (portal: {config.base_url}/portal)")
    leave_signals_of_workers_to_a_thread()
    stop_workers_with_this_process()
    try:
        serve_until_stopped(options, config)
    finally:
        if demo_app is not None:
            demo_app.terminate()
            demo_app.wait()


def serve_until_stopped(options: argparse.Namespace, config: Any) -> None:
    """Serve until a signal stops the process.

    Granian ends when a worker dies soon after it replaced another. Then it is started again, after a pause that grows
    while that goes on: whatever kills the workers, such as a full machine, may pass.
    """
    # Threads of one process write in the order of arrival, processes overtake each other.
    options.workers = options.workers or (1 if config.is_sqlite else 2)
    stopping, pause = Stopping(config.drain_seconds, options.port, options.workers), MIN_PAUSE_SECONDS
    while True:
        began = time.monotonic()
        try:
            new_server(options, config, stopping).serve(
                target_loader=stopping.load_application, wrap_loader=False
            )
        except SystemExit as end:
            if stopping.is_stopping or not end.code:
                raise
        if stopping.is_stopping:
            return
        pause = (
            MIN_PAUSE_SECONDS
            if time.monotonic() - began > STEADY_SECONDS
            else min(2 * pause, MAX_PAUSE_SECONDS)
        )
        say(f"The workers ended again and again. Starting them again in {pause:g} seconds.")
        if stopping.wait(pause):
            return


def new_server(options: argparse.Namespace, config: Any, stopping: Stopping) -> Server:
    """Return a server that has not begun to serve."""
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
    server.on_startup(partial(check_code_before_reload, server, stopping))
    server.on_startup(stopping.follow_signals)
    server.on_reload(stopping.retire_workers)
    return server


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/server", description="Run Gatehouse.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=port, default=8000, help="port to listen on (default 8000)")
    parser.add_argument(
        "--workers", type=count, help="processes (default 2; 1 with SQLite, which has one writer)"
    )
    parser.add_argument(
        "--threads", type=count, default=8, help="concurrent requests in each process (default 8)"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="create the demo organization acme, print its sign-ins and start a demo app",
    )
    parser.add_argument("--demo-port", type=port, default=9000, help="port of the demo app (default 9000)")
    version = load_file("gatehouse_version", ROOT / "app" / "config" / "version.py").VERSION
    parser.add_argument("--version", action="version", version=f"Gatehouse {version}")
    options = parser.parse_args(arguments)
    if options.demo and options.port == options.demo_port:
        parser.error("--port and --demo-port are the same. Use two ports.")
    return options


def port(text: str) -> int:
    return number_up_to(65535, text)


def count(text: str) -> int:
    return number_up_to(1000, text)


def number_up_to(greatest: int, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= greatest:
        raise argparse.ArgumentTypeError(f"use a number from 1 to {greatest}")
    return int(text)


def read_configuration() -> tuple[Any, Any]:
    """Return the checked settings, and the function that finds why nothing can be stored in a folder.

    The first start creates the keys. An unsafe setting ends the start. A key that a service wraps is unwrapped here,
    once: the workers inherit it, so that none of them needs the service when it starts again.
    """
    module = load_file(
        "gatehouse_config",
        ROOT / "app" / "config" / "__init__.py",
        submodule_search_locations=[str(ROOT / "app" / "config")],
    )
    try:
        module.unwrap_environment()
        return module.load(), module.find_fault
    except module.UnsafeConfiguration as error:
        say(str(error))
        raise


def check_folders(config: Any, find_fault: Any, ready: bool) -> None:
    """Print why nothing can be stored in the instance folder or beside the embedded database, if so.

    Without its database the start ends here. A full disk does not end the start of an installation that is set up:
    writes fail until there is space again.
    """
    fault = find_fault(config.instance)
    if config.is_sqlite:
        fault = find_fault(Path(config.database_url.removeprefix("sqlite:///")).parent) or fault
    if fault is None:
        return
    say(str(fault))
    if config.is_sqlite and not (fault.is_full and ready):
        raise SystemExit(EXIT_CONFIGURATION)


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


def check_demo(options: argparse.Namespace, config: Any) -> None:
    """End the start unless the demo, whose sign-ins are printed, can be reached from this machine only."""
    if not config.is_loopback or options.host not in {"127.0.0.1", "::1", "localhost"}:
        say(f"--demo is for the loopback interface, not for {config.base_url} on {options.host}.")
        raise SystemExit(EXIT_CONFIGURATION)
    require_free_port("127.0.0.1", options.demo_port, "--demo-port")


def require_free_port(host: str, port: int, option: str) -> None:
    """End the start if another program listens on the port.

    Granian itself would share it with another server of its kind, and each would get some of the requests. A server
    that was killed has some seconds to disappear.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        try:
            socket.create_server((host, port), family=family).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                say(
                    f"Cannot listen on port {port} of {host} ({error.strerror}). Choose another one with {option}."
                )
                raise SystemExit(EXIT_CONFIGURATION) from None
        time.sleep(0.1)


def start_demo_app(port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start docs/examples/flask_app.py with the settings of its client, and nothing else of this process."""
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--port", str(port), "--no-ws"]
    command += ["--log-level", "error", "--working-dir", str(ROOT / "docs" / "examples"), "flask_app:app"]
    environment |= {"SECRET_KEY": secrets.token_hex(), "PATH": os.environ.get("PATH", os.defpath)}
    # It ends with this process, however that ends.
    end_with_parent = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM)
    return subprocess.Popen(command, env=environment, preexec_fn=end_with_parent)


def prepare(demo_app_url: str | None) -> dict[str, str]:
    """Migrate the schema, and print the setup link or the demo's sign-ins. Return the demo app's environment."""
    from app import create_app
    from app.cli.maintenance import before_serving

    with create_app().app_context():
        return before_serving(demo_app_url=demo_app_url)


def run_in_child(work: Any, *arguments: Any) -> Any:
    """Run the function in a process of its own and return its small JSON value; end this process if it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work(*arguments)).encode())
        except KeyboardInterrupt:
            os._exit(130)
        except SystemExit as end:
            say(str(end))
            os._exit(end.code if isinstance(end.code, int) else 1)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as value:
        text = value.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(os.waitstatus_to_exitcode(status))
    return json.loads(text)


class Stopping:
    """Whether and how this process stops, shared with its workers.

    SIGTERM first makes /readyz answer 503 for ``drain_seconds``, so that a load balancer stops sending requests before
    the port closes. A second signal, or SIGINT, closes it at once.
    """

    def __init__(self, drain_seconds: int, port: int, workers: int) -> None:
        self._drain_seconds = drain_seconds
        self._listening = port, workers
        self._is_draining = mmap.mmap(-1, 1)
        self._reloads = mmap.mmap(-1, 1)
        self._signalled = threading.Event()
        self._close: Any = None

    @property
    def is_stopping(self) -> bool:
        """Whether a signal to stop has arrived."""
        return self._signalled.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until a signal to stop arrives, at most so many seconds; return whether it has."""
        for number in STOPPING:
            signal.signal(number, lambda *_: self._signalled.set())
        return self._signalled.wait(seconds)

    def follow_signals(self) -> None:
        """Take the signals that stop the process; called once Granian's own handlers are installed."""
        self._close = signal.getsignal(signal.SIGTERM)
        for number in STOPPING:
            signal.signal(number, self._stop)

    def retire_workers(self) -> None:
        """Let the present workers close their connections after each response; called before others replace them."""
        self._reloads[0] = (self._reloads[0] + 1) % 256

    def load_application(self) -> Any:
        """Return the WSGI application, in a new worker, which stays with the release that it started from.

        A worker that others replace, or that is about to stop, ends each connection with its next response (RFC 9112,
        section 9.6): a request that a client sends on an open one while the worker stops would be lost.
        """
        threading.Thread(target=finish_accepted_connections, args=self._listening, daemon=True).start()
        reloads = self._reloads[0]
        folder = ROOT.resolve()
        os.chdir(folder)
        sys.path[:] = [
            str(folder / Path(entry).relative_to(ROOT)) if Path(entry).is_relative_to(ROOT) else entry
            for entry in sys.path
        ]
        from wsgi import app

        app.config["IS_DRAINING"] = lambda: self._is_draining[0] != 0

        def serve(environ: dict[str, Any], start_response: Any) -> Any:
            if self._is_draining[0] or self._reloads[0] != reloads:
                start_response = closing(start_response)
            return app(environ, start_response)

        return serve

    def _stop(self, number: int, frame: Any) -> None:
        is_first = not self.is_stopping
        self._signalled.set()
        self._is_draining[0] = 1
        if is_first and number == signal.SIGTERM and self._drain_seconds:
            timer = threading.Timer(self._drain_seconds, self._close)
            timer.daemon = True
            timer.start()
        else:
            self._close(number, frame)


def check_code_before_reload(server: Server, stopping: Stopping) -> None:
    """Pass SIGHUP on to Granian only when the new code starts; called once Granian's signal handlers are installed.

    Granian would start new workers and end the old ones a few seconds later, whether or not the new ones serve.
    """
    reload = signal.getsignal(signal.SIGHUP)

    def check_and_reload(number: int, frame: Any) -> None:
        started = time.monotonic()
        if starts(lambda: stopping.is_stopping):
            # On a busy machine a worker takes longer to start than usual.
            server.respawn_interval = max(RESPAWN_SECONDS, 2 * (time.monotonic() - started))
            reload(number, frame)  # type: ignore[operator, misc]
        else:
            say("Not reloaded: the new code does not start. The workers continue with the code they have.")

    signal.signal(signal.SIGHUP, check_and_reload)


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


def closing(start_response: Any) -> Any:
    """Return the function of WSGI that begins a response, with the header that ends the connection after it."""

    def start(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
        return start_response(status, [*headers, ("Connection", "close")], error)

    return start


def leave_signals_of_workers_to_a_thread() -> None:
    """Let workers begin without the main process's handlers, which would only set a flag, and with signals blocked.

    A signal that arrives before finish_accepted_connections() waits for it is kept.
    """

    def reset_handlers() -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING),
        after_in_child=reset_handlers,
    )


def finish_accepted_connections(port: int, workers: int) -> None:
    """Wait for a signal to stop in a worker, and hand it to Granian once the worker has no connection to lose.

    Granian drops connections that it has not accepted, and those it has accepted and not read from. A worker that still
    loads the application ends at once.
    """
    number = signal.sigwait(STOPPING)
    stop = signal.getsignal(number)
    if not callable(stop):
        os._exit(128 + number)
    try:
        send_connections_to_new_worker(port, workers)
        time.sleep(FIRST_BYTES_SECONDS)
    finally:
        stop(number, None)


def send_connections_to_new_worker(port: int, workers: int) -> None:
    """Let Linux give new connections to the worker that replaces this one, whose socket is the last of the port's.

    There are as many sockets as workers, and one more during a reload. A number beyond them changes nothing.
    """
    last = struct.pack("HBBI", BPF_RET, 0, 0, workers)
    buffer = ctypes.create_string_buffer(last, len(last))
    program = struct.pack("HP", 1, ctypes.addressof(buffer))
    for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        # It fails for what is no socket, and for one that was closed meanwhile.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            found = socket.socket(fileno=int(name))
            # It stays open.
            stack.callback(found.detach)
            is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if is_listening and found.getsockname()[1] == port:
                found.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)


def stop_workers_with_this_process() -> None:
    """Let workers stop when this process was killed. They would serve on, and keep the port, and nobody reload them."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        os.register_at_fork(after_in_child=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
