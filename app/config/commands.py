"""The commands that messages suggest: they differ between an installed release and a checkout."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# script/release adds it to the archive; a checkout has none.
_ONLY_IN_RELEASES = "sbom.cdx.json"


def command_line(arguments: str, *, root: Path = _ROOT) -> str:
    """Return how an operator types a command of this application, such as ``db upgrade``."""
    return f"gatehouse {arguments}" if _is_release(root) else f"flask --app wsgi {arguments}"


def install_line(packages: str, *, root: Path = _ROOT) -> str:
    """Return how an operator installs optional packages. The environment of a release has no pip, its archive has."""
    if not _is_release(root):
        return f".venv/bin/pip install {packages}"
    pip = '"$(echo wheels/pip-*.whl)/pip"'
    return (
        f"{root}/.venv/bin/python {pip} install {packages} (in the folder of the unpacked archive, as root)"
    )


def _is_release(root: Path) -> bool:
    return (root / _ONLY_IN_RELEASES).exists()
