"""Every setting: its environment variable, default and meaning. The README holds the same table."""

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
        "The root issuer, the address people and programs use; https, except on the loopback interface. Passkeys "
        "need a name in it and belong to that name: `http://localhost:8000` to try them here.",
    ),
    Setting(
        "GATEHOUSE_INSTANCE", "instance", "The folder of the keys and of the embedded database; mode 0700."
    ),
    Setting(
        "GATEHOUSE_SECRET_KEY",
        "instance/secret.key",
        "Signs browser cookies, cursors and tags: 64 hexadecimal digits. `GATEHOUSE_SECRET_KEY_FILE` "
        "names a file instead.",
    ),
    Setting(
        "GATEHOUSE_MASTER_KEY",
        "instance/master.key",
        "Wraps the organizations' data keys: 64 hexadecimal digits; losing it loses sealed secrets "
        "and signing keys. `GATEHOUSE_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PREVIOUS_MASTER_KEY",
        "none",
        "The master key before, while `flask --app wsgi keys rewrap` has not gone through. "
        "`GATEHOUSE_PREVIOUS_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PROXY_HOPS",
        "0",
        "How many reverse proxies in front set X-Forwarded-For and -Proto; headers beyond are ignored.",
    ),
    Setting(
        "GATEHOUSE_TRUSTED_HOSTS",
        "the host of the base URL",
        "Comma-separated further Host values that are answered; any other is refused with 400.",
    ),
    Setting("GATEHOUSE_LOG_LEVEL", "info", "debug, info, warning or error."),
    Setting("GATEHOUSE_REQUEST_LOG", "on", "One JSON line a request on standard error: on or off."),
    Setting(
        "GATEHOUSE_DATABASE_POOL",
        "5",
        "Connections a worker keeps for transactions; each thread has one more of its own.",
    ),
    Setting(
        "GATEHOUSE_DATABASE_TIMEOUT",
        "3",
        "Seconds a statement may take before the request is answered 503; 15 on a cluster, above its "
        "failover gap.",
    ),
    Setting(
        "GATEHOUSE_JANITOR",
        "on",
        "Whether one elected worker removes expired rows and renews signing keys: on or off.",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_CA_BUNDLE",
        "the system's authorities",
        "A PEM file of the only authorities that https servers of clients are believed by: for closed networks.",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_ALLOWED_HOSTS",
        "none",
        "Comma-separated `host` or `host:port` of clients that are reached although their address is private.",
    ),
    Setting(
        "GATEHOUSE_SMTP_URL",
        "none",
        "The mail server: `smtp://user:password@host:587`, where STARTTLS must succeed except on the loopback "
        "interface, or `smtps://…`. `GATEHOUSE_SMTP_URL_FILE` names a file instead. Without one, links are shown to "
        "administrators.",
    ),
    Setting("GATEHOUSE_MAIL_FROM", "none", "The address that mail comes from; needed with a mail server."),
    Setting(
        "GATEHOUSE_SMTP_CA_BUNDLE",
        "the system's authorities",
        "A PEM file of the only authorities that the mail server is believed by.",
    ),
)
