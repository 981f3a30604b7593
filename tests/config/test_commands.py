"""Messages name the commands of the installation that prints them."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from app.config import command_line, install_line
from tests.support.server_script import load_script


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """An installed release, as far as the commands ask."""
    folder = tmp_path / "releases" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "sbom.cdx.json").touch()
    return folder


def test_checkout_has_flask_and_pip() -> None:
    assert command_line("db upgrade") == "flask --app wsgi db upgrade"
    assert install_line("python-pkcs11") == ".venv/bin/pip install python-pkcs11"


def test_release_has_the_command_gatehouse(release: Path) -> None:
    assert command_line("db upgrade", root=release) == "gatehouse db upgrade"


def test_only_a_release_has_the_file_that_tells_them_apart() -> None:
    script = load_script("release")
    assert "sbom.cdx.json" not in script.CONTENTS
    assert 'staged / "sbom.cdx.json"' in Path(script.__file__).read_text()


@pytest.mark.slow
def test_pip_of_the_archive_installs_into_a_release(release: Path, tmp_path: Path) -> None:
    """The environment has no pip, as script/install makes it. The packages come from a folder, without network."""
    import ensurepip

    venv.create(release / ".venv", with_pip=False)
    # Python brings this wheel, Debian has it in a folder of its own.
    folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).parent / "_bundled"
    [pip] = Path(folder).glob("pip-*.whl")
    (archive := tmp_path / "gatehouse-1.0.0" / "wheels").mkdir(parents=True)
    shutil.copy(pip, archive)
    line = install_line("pip", root=release).partition(" (")[0]
    # Any wheel serves as the package; pip's is at hand.
    subprocess.run(
        ["sh", "-euc", f"{line} --no-index --find-links wheels --quiet"], cwd=archive.parent, check=True
    )
    assert list((release / ".venv").glob("lib/*/site-packages/pip-*.dist-info"))
