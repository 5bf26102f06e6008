"""Where tests get other releases of PySpark than the one that is installed: from PyPI, a folder each, beside
the virtual environment's own packages. First on the path it is the one; all other packages are shared.

    python -m tests.pysparks    # fetch those that tests run on
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import pytest

from tests.tiers import IN_SOAK

OTHERS = ("4.2.1", "4.3.0")
"""The releases that `make soak` runs tests on beside the one that is installed."""
_INSTALL_TIMEOUT_SECONDS = 900


class PySparkUnavailableError(Exception):
    """The release is neither in its folder nor to be had from PyPI now."""


def environment(version: str | None) -> dict[str, str]:
    """Return what a process must find in its environment to run on that release, fetched at its first use; of
    None, on the installed one. Some 450 MB are fetched, and twice that stays.
    """
    folder = Path(pyspark.__file__).parents[1] if version is None else _fetched(version)
    return {"SPARK_HOME": str(folder / "pyspark"), "PYTHONPATH": "" if version is None else str(folder)}


def required(version: str | None) -> dict[str, str]:
    """Return the environment; where the release cannot be had, skip the test, but fail it in CI."""
    try:
        return environment(version)
    except PySparkUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _fetched(version: str) -> Path:
    folder = Path(sys.prefix, f"pyspark-{version}")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
            made = Path(scratch, "made")
            _install(version, made)
            try:
                made.rename(folder)
            except OSError:  # another process was first
                if not folder.exists():
                    raise
    return folder


def _install(version: str, folder: Path) -> None:
    # Without what it needs: the installed release needs the same. Its wheel is built here, of JARs: 28 s of a
    # processor where they are compressed once more, and 17 s where they are not.
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command += ["--config-settings=--build-option=--compression=stored"]
    command += ["--no-compile", "--target", str(folder), f"pyspark=={version}"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PySparkUnavailableError(
            f"installing PySpark {version} took over {error.timeout:.0f} s"
        ) from error
    if run.returncode != 0:
        raise PySparkUnavailableError(f"could not install PySpark {version}: {run.stderr[-800:]}")


def _main() -> None:
    """Fetch the other releases; what cannot be had now is left to the tests, which say so."""
    for version in OTHERS if IN_SOAK else ():
        try:
            environment(version)
        except PySparkUnavailableError as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    _main()
