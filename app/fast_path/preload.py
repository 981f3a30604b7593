"""Import the libraries once, before the server forks its workers, so that the workers share their memory.

The server's main process loads this file by its path: it must not import the application itself, because on SIGHUP
new workers import the code as it is then. When requirements.txt changes, the server has to be restarted.
"""

from __future__ import annotations

import gc
import importlib

# Everything that each worker imports besides the application.
LIBRARIES = (
    "annotated_types",
    "argon2",
    "authlib.integrations.flask_oauth2",
    "authlib.oauth2.rfc7591",
    "authlib.oauth2.rfc7592",
    "authlib.oauth2.rfc7662",
    "authlib.oauth2.rfc8628",
    "authlib.oidc.core",
    "authlib.oidc.registration",
    "authlib.oidc.rpinitiated",
    "bcrypt",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "cryptography.hazmat.primitives.kdf.scrypt",
    "email.headerregistry",
    "flask_babel",
    "flask_login",
    "flask_sqlalchemy.cli",
    "flask_wtf.file",
    "idna",
    "jinja2.ext",
    "joserfc.jwk",
    "joserfc.jws",
    "joserfc.jwt",
    "markdown_it",
    "msgspec",
    "MySQLdb.connections",
    "pydantic.fields",
    "pydantic.functional_validators",
    "pydantic.main",
    "pydantic.types",
    "pygments.lexers",
    "pygments.token",
    "rcssmin",
    "smtplib",
    "sqlalchemy.dialects.mysql.mysqldb",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.ext.compiler",
    "werkzeug.middleware.proxy_fix",
)


def load_libraries() -> None:
    """Import the libraries and exclude them from garbage collection.

    A collection writes to every object, which would end the sharing of its memory page.
    """
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
