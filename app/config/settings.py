"""All settings with their environment variable, default and meaning. The README has the same table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """One documented setting."""

    variable: str
    default: str
    meaning: str


SETTINGS = (
    Setting(
        "DATABASE_URL",
        "sqlite in the instance folder",
        "`mysql://user:password@host/database` (MySQL, MariaDB) or `sqlite:////path/file`.",
    ),
    Setting(
        "GATEHOUSE_BASE_URL",
        "http://127.0.0.1:8000",
        "The public URL and root issuer; https, except on the loopback interface. Passkeys need a host name in it and "
        "are bound to that name. To try them locally, use `http://localhost:8000`.",
    ),
    Setting(
        "GATEHOUSE_INSTANCE", "instance", "The folder of the keys and the embedded database, with mode 0700."
    ),
    Setting(
        "GATEHOUSE_SECRET_KEY",
        "instance/secret.key",
        "Signs cookies, cursors and ETags: 64 hexadecimal digits. `GATEHOUSE_SECRET_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_MASTER_KEY",
        "instance/master.key",
        "Wraps the organizations' data keys: 64 hexadecimal digits. If it is lost, sealed secrets and signing keys are "
        "lost. `GATEHOUSE_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PREVIOUS_MASTER_KEY",
        "none",
        "The previous master key, until `flask --app wsgi keys rewrap` has finished. "
        "`GATEHOUSE_PREVIOUS_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PROXY_HOPS",
        "0",
        "How many reverse proxies in front set X-Forwarded-For and X-Forwarded-Proto. Further entries are ignored.",
    ),
    Setting(
        "GATEHOUSE_TRUSTED_HOSTS",
        "the host of the base URL",
        "Comma-separated further Host values to accept. Any other is rejected with 400.",
    ),
    Setting("GATEHOUSE_LOG_LEVEL", "info", "debug, info, warning or error."),
    Setting("GATEHOUSE_REQUEST_LOG", "on", "Log one JSON line per request to standard error: on or off."),
    Setting(
        "GATEHOUSE_DATABASE_POOL",
        "5",
        "Database connections of a worker for transactions. Each thread has one more.",
    ),
    Setting(
        "GATEHOUSE_DATABASE_TIMEOUT",
        "3",
        "Seconds a statement may take before the request fails with 503. Use 15 on a cluster, more than its failover "
        "takes.",
    ),
    Setting(
        "GATEHOUSE_JANITOR",
        "on",
        "Whether one worker, elected among all, deletes expired rows and rotates signing keys: on or off.",
    ),
    Setting(
        "GATEHOUSE_BODY_TIMEOUT",
        "10",
        "Seconds that a request body may take to arrive, plus one second for each 8 KiB; at most 300. A slower request "
        "is rejected with 408.",
    ),
    Setting(
        "GATEHOUSE_DISABLE_FAST_PATH",
        "none",
        "Comma-separated speed techniques to switch off: `middleware`, `compiled-queries`, `caches`, "
        "`authenticated-clients`, `preload` (app/fast_path/README.md).",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_CA_BUNDLE",
        "the system's CAs",
        "A PEM file with the only CAs to trust for https requests to clients, for closed networks.",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_ALLOWED_HOSTS",
        "none",
        "Comma-separated `host` or `host:port` of clients to contact although their IP address is private.",
    ),
    Setting(
        "GATEHOUSE_SMTP_URL",
        "none",
        "The mail server: `smtp://user:password@host:587`, where STARTTLS is required except on the loopback "
        "interface, or `smtps://…`. `GATEHOUSE_SMTP_URL_FILE` names a file instead. Without one, administrators "
        "see the links and pass them on.",
    ),
    Setting("GATEHOUSE_MAIL_FROM", "none", "The sender's email address. Required with a mail server."),
    Setting(
        "GATEHOUSE_SMTP_CA_BUNDLE",
        "the system's CAs",
        "A PEM file with the only CAs to trust for the mail server.",
    ),
)
