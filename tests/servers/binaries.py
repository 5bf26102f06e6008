"""Where the tests get the object-store servers: built or fetched once, pinned, into the user's cache folder.

Each server comes from the registry of its own language, by that language's own client. Nothing here is part
of the product.

    python -m tests.servers.binaries    # make those that every run of the tests needs
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

AZURITE = "3.37.0"
MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
S3MOCK = "5.2.0"
NESSIE = "0.99.0"
VERSITYGW = "v1.8.0"

_S3MOCK_SHA256 = "dd7c192fef0005374dec507317ae946eaa5beeffeb4e901d8b97f7fd2ddfb741"
_NESSIE_SHA256 = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
_INSTALL_TIMEOUT_SECONDS = 900
_FAKEGCS_SOURCES = Path(__file__).with_name("fakegcs")


class ServerUnavailableError(Exception):
    """A server can neither be found in the cache nor be had now."""


def azurite() -> Path:
    """Return Azurite's blob server, a script for node; about 30 s the first time."""
    _tool("node", "Node.js 20 or later")
    npm = [_tool("npm", "npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    folder = cached(
        f"azurite-{AZURITE}", lambda made: run([*npm, "--prefix", str(made), f"azurite@{AZURITE}"])
    )
    return folder / "node_modules" / ".bin" / "azurite-blob"


def fake_gcs() -> Path:
    """Return the wrapper over fake-gcs-server's library that stands in `fakegcs/`; almost three minutes of a
    processor the first time, with all that Google's client needs.
    """
    sources = sorted(_FAKEGCS_SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()

    def build(made: Path) -> None:
        # Not optimized: the build takes a quarter less time, and the tests as long.
        flags = ["-buildvcs=false", "-gcflags=all=-N -l", "-ldflags=-s -w"]
        run([_go(), "build", *flags, "-o", str(made / "fakegcs"), "."], cwd=_FAKEGCS_SOURCES)

    return cached(f"fakegcs-{digest[:12]}", build) / "fakegcs"


def minio() -> Path:
    """Return MinIO; about two minutes on two idle cores the first time."""
    return _go_install("github.com/minio/minio", MINIO)


def versitygw() -> Path:
    """Return the Versity gateway; about two minutes on two idle cores the first time."""
    return _go_install("github.com/versity/versitygw/cmd/versitygw", VERSITYGW)


def s3mock() -> Path:
    """Return Adobe's S3Mock, a JAR that runs by itself."""
    jar = f"com.adobe.testing s3mock {S3MOCK} exec"
    folder = cached(f"s3mock-{S3MOCK}-exec", lambda made: retrieve_jars({jar: _S3MOCK_SHA256}, made))
    return folder / f"s3mock-{S3MOCK}-exec.jar"


def nessie() -> Path:
    """Return Project Nessie's server, a JAR of 245 MB that runs by itself, on a Java of `java21`."""
    jar = f"org.projectnessie.nessie nessie-quarkus {NESSIE} runner"
    folder = cached(f"nessie-{NESSIE}", lambda made: retrieve_jars({jar: _NESSIE_SHA256}, made))
    return folder / f"nessie-quarkus-{NESSIE}-runner.jar"


def java21() -> str:
    """Return a Java of version 21 or later, which Spark need not take."""
    for program in (java(), *sorted(map(str, Path("/usr/lib/jvm").glob("*/bin/java")))):
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "(\d+)', said)
        if found and int(found[1]) >= 21:
            return program
    raise ServerUnavailableError("needs a JDK of version 21 or later, in /usr/lib/jvm or as JAVA_HOME")


def retrieve_jars(wanted: Mapping[str, str], folder: Path) -> None:
    """Fetch JARs of Maven Central into a folder: group, artifact, version and perhaps a classifier, with the
    SHA-256 that each must have.
    """
    names, modules = dict[str, str](), defaultdict[tuple[str, ...], list[str]](list)
    for jar, sha256 in wanted.items():
        group, artifact, version, *classifier = jar.split()
        names["-".join([artifact, version, *classifier]) + ".jar"] = sha256
        of = f' m:classifier="{classifier[0]}"' if classifier else ""
        modules[group, artifact, version].append(f'<artifact name="{artifact}" type="jar" ext="jar"{of}/>')
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false">{"".join(artifacts)}'
        "</dependency>"
        for (group, name, version), artifacts in modules.items()
    )
    (folder / "ivy.xml").write_text(_IVY.format(dependencies))
    (folder / "settings.xml").write_text(_IVY_SETTINGS)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [java(), "-jar", str(ivy), "-settings", str(folder / "settings.xml")]
    command += ["-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "ivy"), "-confs", "default"]
    run([*command, "-retrieve", str(folder / "[artifact]-[revision](-[classifier]).[ext]")])
    shutil.rmtree(folder / "ivy")
    for name, sha256 in names.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != sha256:
            raise ServerUnavailableError(f"{name} has another checksum than expected: {found}")


def java() -> str:
    """Return the Java that Spark takes, too."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else _tool("java", "a JDK of version 17 or later")


def javac() -> str:
    """Return the compiler of that Java."""
    beside = Path(java()).with_name("javac")
    return str(beside) if beside.exists() else _tool("javac", "a JDK of version 17 or later")


@contextlib.contextmanager
def or_skip() -> Iterator[None]:
    """Skip the test where a server's toolchain or registry is absent; in CI, fail it."""
    try:
        yield
    except ServerUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


# Without its POM: a JAR that runs by itself needs no other, and the POM's ancestors are fifty more requests.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="servers"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""


def _go_install(module: str, version: str) -> Path:
    name = module.rpartition("/")[2]

    def install(made: Path) -> None:
        run([_go(), "install", "-buildvcs=false", f"{module}@{version}"], GOBIN=str(made))

    return cached(f"{name}-{version}", install) / name


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of that name in the cache, made by `make` if it is not there.

    It appears in one step. Of processes that start together one makes it, and the others wait for it.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streaming-sink-tests")
    folder = root / name
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{name}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=root) as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                made = Path(scratch, name)
                made.mkdir()
                make(made)
                made.rename(folder)
    return folder


def _go() -> str:
    return _tool("go", "Go 1.26 or later")


def _tool(name: str, what: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerUnavailableError(f"no {name} found: install {what}")
    return found


def run(command: list[str], cwd: Path | None = None, **environment: str) -> None:
    """Run a command. ServerUnavailableError where it fails."""
    try:
        subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_TIMEOUT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailableError(f"it took over {error.timeout:.0f} s: {' '.join(command)}") from error
    except subprocess.CalledProcessError as error:
        raise ServerUnavailableError(f"failed: {' '.join(command)}: {error.stdout[-800:]}") from error


if __name__ == "__main__":
    try:
        azurite()
    except ServerUnavailableError as error:  # the tests that need it say so too
        sys.stderr.write(f"{error}\n")
