"""What is done once, before workers are forked, that each of them would otherwise do for itself."""

from __future__ import annotations

import compileall
import gc
import importlib
import os
from pathlib import Path

# What every worker imports beside the application itself. The application is no part of it: on SIGHUP new workers
# import the code of that moment. When requirements.txt changes, the server is restarted.
LIBRARIES = (
    "annotated_types",
    "argon2",
    "authlib.integrations.flask_oauth2",
    "authlib.oauth2.rfc8628",
    "bcrypt",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "cryptography.hazmat.primitives.kdf.scrypt",
    "email.headerregistry",
    "flask_babel",
    "flask_login",
    "flask_sqlalchemy",
    "flask_wtf",
    "idna",
    "jinja2.ext",
    "joserfc.jwk",
    "joserfc.jws",
    "MySQLdb",
    "pydantic.fields",
    "pydantic.main",
    "pydantic.types",
    "smtplib",
    "sqlalchemy.dialects.mysql.mysqldb",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "werkzeug.middleware.proxy_fix",
)


def load_libraries() -> None:
    """Workers share the libraries' memory with this process, and begin with what is theirs alone.

    What is garbage here is looked for no more: a collection writes to each object and would part the memory again.
    """
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()


def compile_code(root: Path) -> None:
    """The application's byte code stands where it can be written, so that the workers do not each compile it."""
    if os.access(root / "app", os.W_OK):
        compileall.compile_dir(root / "app", quiet=2)
        compileall.compile_file(root / "wsgi.py", quiet=2)
