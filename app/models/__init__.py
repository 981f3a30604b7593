"""The tables, one family a file. Importing this package declares all of them."""

from __future__ import annotations

import importlib
import pkgutil

from app.models.base import Base

__all__ = ["Base"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
