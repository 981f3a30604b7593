"""A load generator: several processes, each with its share of the connections in one epoll loop.

A visitor is a generator: it yields the bytes of a request with the expected response, receives the response, and
yields again; ``DONE`` ends an operation. So flows that pass a token from step to step run at full speed.
"""

from __future__ import annotations

import multiprocessing
import random
import select
import socket
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Ask:
    """A request with the status and text that its response must have."""

    request: bytes
    status: int = 200
    holds: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> bytes:
        """Return the value of a header, or an empty string."""
        for line in self.head.split(b"\r\n"):
            if line[: len(name) + 1].lower() == name.lower() + b":":
                return line[len(name) + 1 :].strip()
        return b""


DONE = object()
Visitor = Generator[Any, Any, None]
MakeVisitor = Callable[[int], Visitor]


@dataclass(slots=True)
class Result:
    """Operations of one run: their number, durations and errors."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    sample: str = ""

    @property
    def rate(self) -> float:
        """Return the operations per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, part: float) -> float:
        """Return this quantile of the latency in milliseconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 if ordered else 0.0


def request(
    method: str,
    path: str,
    body: bytes = b"",
    *,
    host: str = "127.0.0.1",
    headers: dict[str, str] | None = None,
) -> bytes:
    """Return the bytes of an HTTP/1.1 request on a persistent connection."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    if body:
        lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def cycle(asks: Sequence[Ask]) -> MakeVisitor:
    """Return visitors that send these requests in turn, each beginning at another one."""

    def visitor(number: int) -> Visitor:
        at = random.Random(number).randrange(len(asks))
        while True:
            yield asks[at % len(asks)]
            yield DONE
            at += 1

    return visitor


def run(port: int, make: MakeVisitor, *, connections: int, seconds: float, processes: int = 2) -> Result:
    """Run the visitors' operations against the port for this time, after a second of warming up."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    shares = [range(start, connections, processes) for start in range(processes)]
    children = [
        context.Process(target=_work, args=(port, make, share, seconds, queue)) for share in shares if share
    ]
    for child in children:
        child.start()
    total = Result(seconds)
    for _ in children:
        # A visitor that fails ends its process with a traceback.
        latencies, errors, sample = queue.get(timeout=seconds + 30)
        total.latencies += latencies
        total.errors += errors
        total.sample = total.sample or sample
    for child in children:
        child.join()
    return total


class _Connection:
    __slots__ = ("_port", "ask", "began", "buffer", "socket", "visitor")

    def __init__(self, port: int, visitor: Visitor) -> None:
        self._port = port
        self.connect()
        self.visitor = visitor
        self.buffer = b""
        self.ask: Ask = next(visitor)
        self.began = time.perf_counter()
        self.socket.sendall(self.ask.request)

    def connect(self) -> None:
        """Open the connection, anew if the server has closed it."""
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> Answer | None:
        """Return the whole response once it has arrived."""
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self.buffer += piece
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = self.buffer[:end]
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return None
        answer = Answer(int(head[9:12]), head, self.buffer[end + 4 : end + 4 + length])
        self.buffer = b""
        return answer

    def go_on(self, answer: Answer, latencies: list[float]) -> None:
        """Pass the response to the visitor and send its next request."""
        step = self.visitor.send(answer)
        if step is DONE:
            now = time.perf_counter()
            latencies.append(now - self.began)
            step = next(self.visitor)
            self.began = time.perf_counter()
        self.ask = step
        self.socket.sendall(step.request)


def _work(port: int, make: MakeVisitor, share: range, seconds: float, queue: Any) -> None:
    poll = select.epoll()
    latencies: list[float] = []
    errors, sample = 0, ""
    by_number = {}

    def watch(connection: _Connection) -> None:
        by_number[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)

    for number in share:
        watch(_Connection(port, make(number)))
    begin = time.perf_counter() + 1
    warm = True
    while (now := time.perf_counter()) < begin + seconds:
        if warm and now >= begin:
            warm = False
            latencies.clear()
            errors, sample = 0, ""
        for number, _event in poll.poll(0.1):
            connection = by_number[number]
            answer = connection.receive()
            if answer is None:
                continue
            ask = connection.ask
            if answer.status != ask.status or ask.holds not in answer.body:
                errors += 1
                sample = sample or f"{ask.request[:80]!r} -> {answer.status} {answer.body[:200]!r}"
            if b"connection: close" in answer.head:
                connection.socket.close()
                connection.connect()
                watch(connection)
            connection.go_on(answer, latencies)
    queue.put((latencies, errors, sample))
    queue.close()
    queue.join_thread()
