"""The version of this service, which only pyproject.toml states."""

import tomllib
from pathlib import Path

VERSION: str = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
