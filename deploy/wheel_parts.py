"""What a wheel holds, and how it is named: for `setup.py`, which runs this file by its path.

One tree makes two distributions: `trocket`, which is everything, and with TROCKET_CLIENT in the
environment `trocket-client`, the same modules without those of servers, command, jobs and harness.
docs/releasing.md says why.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from setuptools import Distribution
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "trocket"
CLIENT_NAME: Final = "trocket-client"
CLIENT_DESCRIPTION: Final = "RocketMQ in Python: the client for trio, asyncio and threads, alone"
CLIENT_EXTRAS: Final = frozenset({"compression", "grpc", "grpc-pure", "opentelemetry"})
CLIENT_FOLDERS: Final = ("blocking", "client", "native")
"""Folders that the client has as a whole; of others it has the modules that these import."""

CLIENT_SWITCH: Final = "TROCKET_CLIENT"
"""The environment variable that makes `trocket-client`."""


@cache  # setuptools asks for each package
def client_modules(root: Path = ROOT) -> frozenset[str]:
    """The modules of the client, such as "trocket.remoting.codec".

    They are those that the client's folders import, anywhere in a function and for type checkers,
    too: none that a program may need is missing.
    """
    found: set[str] = set()
    left = [PACKAGE]
    for folder in CLIENT_FOLDERS:
        files = (path.relative_to(root) for path in (root / folder).rglob("*.py"))
        left += [".".join([PACKAGE, *path.with_suffix("").parts]) for path in files]
    while left:
        name = left.pop().removesuffix(".__init__")
        path = _path(root, name)
        if name in found or path is None:
            continue
        found.add(name)
        left += [name.rpartition(".")[0], *_imported(path, name)]
    return frozenset(found)


def _path(root: Path, name: str) -> Path | None:
    """The file of a module; None: it is no module of the package."""
    head, *parts = name.split(".")
    if head != PACKAGE:
        return None
    base = root.joinpath(*parts)
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _imported(path: Path, name: str) -> Iterator[str]:
    """The names that a module imports; some are attributes of modules, and no modules."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            where = ".".join([*base, *filter(None, [node.module])])
            yield where
            yield from (f"{where}.{alias.name}" for alias in node.names)


class ClientDistribution(Distribution):
    """`trocket-client`, from the metadata of pyproject.toml."""

    packages: list[str]
    extras_require: dict[str, list[str]]
    entry_points: dict[str, list[str]]

    def parse_config_files(self, *arguments: Any, **options: Any) -> None:
        """Read pyproject.toml, and keep what is the client's."""
        super().parse_config_files(*arguments, **options)
        packages = {_package(name) for name in client_modules()}
        self.metadata.name = CLIENT_NAME
        self.metadata.description = CLIENT_DESCRIPTION
        self.packages = [name for name in self.packages if name in packages]
        self.package_data = {PACKAGE: ["py.typed"]}
        self.entry_points = {}
        extras = {
            name: needs for name, needs in self.extras_require.items() if name in CLIENT_EXTRAS
        }
        self.extras_require = self.metadata.extras_require = extras


def _package(name: str) -> str:
    path = _path(ROOT, name)
    return name if path is not None and path.name == "__init__.py" else name.rpartition(".")[0]


class WholeBuild(build_py):
    """Copies modules into an empty folder: files of an earlier build are in no wheel."""

    def run(self) -> None:
        """Copy the modules."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class ClientBuild(WholeBuild):
    """Copies the client's modules only."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Modules of a package: (package, module, path)."""
        kept = client_modules()
        return [
            (package, module, path)
            for package, module, path in super().find_package_modules(package, package_dir)
            if module == "__init__" or f"{package}.{module}" in kept
        ]


class NamedWheel(bdist_wheel):
    """A wheel whose name says whether it has the C extension, which may not have been built."""

    skip_build: bool

    def run(self) -> None:
        """Build the wheel."""
        if not self.skip_build:
            self.run_command("build")
            self.skip_build = True
        extensions = self.get_finalized_command("build_ext")
        if self.distribution.ext_modules and not any(
            Path(path).is_file() for path in extensions.get_outputs()
        ):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


def classes(environment: Mapping[str, str], is_set: Any) -> dict[str, Any]:
    """The arguments of `setup` for what is to be made.

    Args:
      is_set: whether the text of a switch means yes.
    """
    is_client = is_set(environment.get(CLIENT_SWITCH, ""))
    commands = {"build_py": ClientBuild if is_client else WholeBuild, "bdist_wheel": NamedWheel}
    return {
        "cmdclass": commands,
        "distclass": ClientDistribution if is_client else Distribution,
    }
