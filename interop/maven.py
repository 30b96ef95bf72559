"""The official jars, fetched by Maven, and our Java sources compiled against them.

Jars lie in `VERSION/SET` of the cache folder; a set is a profile of the pom: client, server,
filtersrv, acl, tools, example, proxy, grpc or junit. Folders are filled under a temporary name and
renamed, so a folder under its final name is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .cache import CACHE_FOLDER
from .guard import guard, temporary_folder
from .process import PeerError

JAVA_FOLDER = Path(__file__).resolve().parent / "clients" / "java"
MAVEN_TIMEOUT_S = 900.0
COMPILE_TIMEOUT_S = 120.0

JAVA_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
"""Needed by RocketMQ 4.x on Java 17: without them its shutdown fails before the last flush."""

SIGNING_CLASS = "org/apache/rocketmq/acl/common/AclClientRPCHook.class"

JAVA_SMALL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that should start quickly and stay small."""
JAVA_BROKER = ("-Xmx768m", *JAVA_SMALL[1:])
"""For a broker: with less heap, messages of 4 MiB from several clients break its connections."""


def missing_tool() -> str | None:
    """Why Java peers cannot run here ("no javac in PATH"), or None if they can."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} in PATH (Java 17 and Maven are needed)"
    return None


def has_jars(version: str, jar_set: str, *, cache: Path = CACHE_FOLDER) -> bool:
    """Whether the jars of one set are in the cache (see `fetch_jars`)."""
    return (cache / version / jar_set).is_dir()


def fetch_jars(version: str, jar_set: str, *, cache: Path = CACHE_FOLDER) -> Path:
    """The folder with the jars of one set, fetched by Maven if it is not in the cache.

    Args:
      version: a RocketMQ version on Maven Central, such as "5.5.0"; of "grpc", that of
        rocketmq-client-java.
      jar_set: "client", "server", "filtersrv" (4.2.0), "acl" (4.4 to 5.3.2), "tools",
        "example", "proxy" (from 5.0), "grpc", or "junit", which is the same for each version.
    Raises: PeerError: Maven failed (the message has its last lines).
    """
    folder = cache / version / jar_set
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(folder.parent) as scratch:
        fresh = scratch / jar_set
        command = ["mvn", "-B", "-q", "-f", str(JAVA_FOLDER / "pom.xml"), "-P", jar_set]
        command += [f"-Drocketmq.version={version}", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
        _run(command, MAVEN_TIMEOUT_S, f"fetching {jar_set} jars {version}")
        _rename_into_place(fresh, folder)
    return folder


def compile_java(
    version: str,
    *,
    folder: str = "src",
    also: Sequence[str] = (),
    jar_set: str = "client",
    cache: Path = CACHE_FOLDER,
) -> str:
    """The class path of our Java sources and the official jars; compiles if sources changed.

    Args:
      folder: beside the pom: "src", "src-4.2", "grpc", or "oracle", which needs the "server" jars.
      also: files of "src" to compile with them.
    Raises: PeerError: Maven or javac failed.
    """
    sources = sorted((JAVA_FOLDER / folder).glob("*.java"))
    sources += [JAVA_FOLDER / "src" / name for name in also]
    if folder == "src" and not _signs(fetch_jars(version, jar_set, cache=cache)):
        jar_sets = [jar_set, "acl"]
    else:
        jar_sets = [jar_set]
    return compile_sources(version, sources, jar_sets=jar_sets, cache=cache)


def _signs(jars: Path) -> bool:
    """Whether the client in a folder of jars has the class that signs, as that of 5.5.0 has."""
    for jar in jars.glob("rocketmq-client-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            if SIGNING_CLASS in archive.namelist():
                return True
    return False


def compile_sources(
    version: str, sources: Sequence[Path], *, jar_sets: Sequence[str], cache: Path = CACHE_FOLDER
) -> str:
    """The class path of Java sources and the official jars of some sets; compiles what is new.

    Raises: PeerError: Maven or javac failed.
    """
    folders = [fetch_jars(version, jar_set, cache=cache) for jar_set in jar_sets]
    jars = os.pathsep.join(f"{folder}/*" for folder in folders)
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = cache / version / f"classes-{digest}.jar"
    if not classes.is_file():
        with temporary_folder(classes.parent) as scratch:
            fresh = scratch / "classes"
            fresh.mkdir()
            command = ["javac", *(f"-J{option}" for option in JAVA_SMALL), "-nowarn", "-proc:none"]
            command += ["-cp", jars, "-d", str(fresh)]
            command += [str(source) for source in sources]
            _run(command, COMPILE_TIMEOUT_S, f"compiling against {version}")
            # A jar: an archive of classes (`class_archive`) takes none from folders.
            made = shutil.make_archive(str(scratch / "classes"), "zip", fresh)
            Path(made).rename(classes)
    return f"{classes}{os.pathsep}{jars}"


def _run(command: list[str], timeout_s: float, what: str) -> None:
    try:
        result = subprocess.run(
            command,
            env={**os.environ, **guard().environment()},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{what}: {error}") from error
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
        raise PeerError(f"{what}: {command[0]} ended with {result.returncode}\n{last}")


def _rename_into_place(fresh: Path, folder: Path) -> None:
    """Rename the finished folder; one made meanwhile by another process has the same content."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
