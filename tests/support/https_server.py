"""An https server on the loopback interface with its own certificate authority."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.config import Config


@dataclass(frozen=True, slots=True)
class Request:
    """A received request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A handler's response; ``raw`` bytes are sent in its place, as they are produced."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: Iterable[bytes] | None = None


Handler = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class HttpsServer:
    """A running server; ``requests`` collects what it receives."""

    base_url: str
    port: int
    ca_path: Path
    requests: list[Request]

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that let the service trust and reach the server."""
        return {
            "GATEHOUSE_OUTGOING_CA_BUNDLE": str(self.ca_path),
            "GATEHOUSE_OUTGOING_ALLOWED_HOSTS": f"localhost:{self.port}",
        }


def reaching(config: Config, *servers: HttpsServer) -> Config:
    """Return the configuration with which the service trusts and reaches the servers."""
    return dataclasses.replace(
        config,
        outgoing_ca_bundle=servers[0].ca_path,
        outgoing_allowed_hosts=frozenset(f"localhost:{server.port}" for server in servers),
    )


@contextmanager
def https_server(handler: Handler, *, port: int = 0, name: str = "localhost") -> Iterator[HttpsServer]:
    """Run a server whose certificate is for ``name``.

    Servers of one test run share the authority, so one ``ca_path`` trusts them all.
    """
    requests: list[Request] = []

    class Face(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            request = Request(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            requests.append(request)
            response = handler(request)
            if response.raw is not None:
                self.wfile.writelines(response.raw)
                return
            self.send_response(response.status)
            for header, value in {"Content-Length": str(len(response.body)), **response.headers}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(response.body)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore disconnects, which some tests cause on purpose."""

    server = Server(("127.0.0.1", port), Face)
    authority = _authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate_for(name))
    # Each connection does its own handshake, so that a stalled one does not block the accepting thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield HttpsServer(
            f"https://localhost:{server.server_port}", server.server_port, authority.ca_path, requests
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Authority:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gatehouse-ca-")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Gatehouse tests")])
        certificate = (
            self._certificate(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_path = Path(self._folder.name) / "ca.pem"
        self.ca_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def certificate_for(self, name: str) -> Path:
        """Return a file with the key and certificate of a server of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if name == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        certificate = (
            self._certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = Path(self._folder.name) / f"{name}-{certificate.serial_number}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


_made: list[_Authority] = []
_making = threading.Lock()


def _authority() -> _Authority:
    with _making:
        if not _made:
            _made.append(_Authority())
        return _made[0]


def certificate(name: str = "localhost") -> tuple[Path, Path]:
    """Return a file with key and certificate of a server of that name, and the authority's certificate."""
    authority = _authority()
    return authority.certificate_for(name), authority.ca_path
