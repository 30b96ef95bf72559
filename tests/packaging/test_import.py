"""Modules that an import loads: none for `trocket` itself, no server's packages for the client.

What is imported is looked at, not how long it takes: that depends on the machine.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import trocket

ROOT = Path(__file__).resolve().parent.parent.parent

EXTRAS = ("trio", "outcome", "lark", "lz4", "zstandard", "typer", "click", "rich", "pyarrow")
"""Packages that only an extra installs."""

POSIX_MODULES = ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios", "tty")
"""Modules of Python that Windows does not have."""

SHELL = {
    "acceptor",
    "channel",
    "client",
    "connection",
    "fair_turns",
    "http_server",
    "listening",
    "loop_monitor",
    "memory_limit",
    "opener",
    "pages",
    "poller",
    "request_counts",
    "server",
    "server_metrics",
    "tls_client",
    "tls_files",
    "tls_server",
    "tls_settings",
    "tls_transport",
    "loop_transport",
    "transport",
    "turn",
}
"""Modules of remoting that are trio's; every other one is pure, and the client may import it."""

COMMON_SHELL = {"collector", "machine", "notifier", "process", "steps", "supervision"}
"""The same of common: trio's, or for servers; `sql92.parser` and `sql92.terms` need lark."""

NOT_CLIENT = {"__init__", "pytest_plugin", "setup"}
"""Modules of the root that are not the client's."""


def run(code: str) -> Any:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def import_without(names: Iterable[str], blocked: Iterable[str]) -> None:
    """Import `names` in an interpreter in which `blocked` cannot be imported."""
    run(
        "import importlib, sys\n"
        # Python's own modules first: what they import depends on the system.
        "import asyncio, pathlib, socket, ssl, subprocess, tempfile, typing\n"
        f"for name in {list(blocked)!r}: sys.modules[name] = None\n"
        f"for name in {list(names)!r}: importlib.import_module(name)\n"
        "print('true')"
    )


def modules(folder: str, leave_out: Iterable[str] = ()) -> list[str]:
    found = [
        ".".join(["trocket", *path.relative_to(ROOT).with_suffix("").parts])
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.stem not in leave_out
    ]
    return [name.removesuffix(".__init__") for name in found]


def test_importing_trocket_imports_nothing_else() -> None:
    heavy = (*EXTRAS, "anyio", "msgspec", "asyncio", "hypothesis", "logging", "ssl")
    code = "import json, sys, trocket; print(json.dumps(sorted(sys.modules)))"
    loaded = run(code)
    assert sorted(set(heavy) & set(loaded)) == []
    assert [name for name in loaded if name.startswith("trocket.")] == []


@pytest.mark.parametrize(
    ("code", "ours_max", "packages"),
    [
        (
            "from trocket import Producer, PushConsumer, Message",
            177,
            {"anyio", "idna", "msgspec", "sniffio", "typing_extensions"},
        ),
        (
            "from trocket.testing import Broker",
            479,
            {
                "attr", "attrs", "idna", "msgspec", "outcome", "sniffio", "sortedcontainers",
                "trio", "typing_extensions",
            },
        ),
        (
            "from trocket.cli.main import main\nwith redirect_stdout(StringIO()): main(['--help'])",
            20,
            {"annotated_doc", "click", "msgspec", "shellingham", "typer", "typing_extensions"},
        ),
    ],
    ids=["the client", "trocket.testing", "trocket --help"],
)  # fmt: skip
def test_what_users_wait_for_imports_no_more_than_it_did(
    code: str, ours_max: int, packages: set[str]
) -> None:
    """A budget of modules: some 0.2 ms for each of ours, 3 to 40 ms for a package."""
    found = run(
        "import json, sys\n"
        "from contextlib import redirect_stdout\n"
        "from io import StringIO\n"
        "before = set(sys.modules)\n"
        f"{code}\n"
        "names = [name.split('.')[0] for name in set(sys.modules) - before]\n"
        "print(json.dumps(names))"
    )
    assert found.count("trocket") <= ours_max
    others = {name for name in found if name not in sys.stdlib_module_names} - {"trocket"}
    assert others <= packages


PURE = modules("remoting", leave_out=SHELL) + modules(
    "common", leave_out={*COMMON_SHELL, "parser", "terms"}
)


@pytest.mark.slow
def test_the_pure_modules_of_remoting_and_common_need_neither_an_extra_nor_posix() -> None:
    for name in ("codec", "bodies", "headers", "message_codec"):
        assert f"trocket.remoting.{name}" in PURE
    import_without(PURE, [*EXTRAS, *POSIX_MODULES])


@pytest.mark.slow
def test_the_client_needs_neither_an_extra_nor_posix() -> None:
    beside = [f"trocket.{path.stem}" for path in ROOT.glob("*.py") if path.stem not in NOT_CLIENT]
    import_without([*modules("client"), *beside], [*EXTRAS, *POSIX_MODULES])


@pytest.mark.slow
def test_every_public_name_can_be_imported_without_an_extra() -> None:
    code = (
        "import json, sys\n"
        f"for name in {EXTRAS!r}: sys.modules[name] = None\n"
        "import trocket\n"
        "values = [getattr(trocket, name) for name in trocket.__all__]\n"
        "from trocket import *\n"
        "print(json.dumps(dir(trocket)))"
    )
    assert set(trocket.__all__) <= set(run(code))


def test_type_checkers_and_python_see_the_same_public_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name
        for branch in tree.body
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert {*seen, "__version__"} == set(trocket.__all__)


def test_type_checkers_and_python_find_the_names_of_the_client_in_the_same_modules() -> None:
    from trocket import client

    tree = ast.parse((ROOT / "client" / "__init__.py").read_text(encoding="utf-8"))
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: "." * node.level + (node.module or "")
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == client._MODULES
    assert set(seen) == set(client.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    from trocket import client

    with pytest.raises(AttributeError, match="module 'trocket' has no attribute 'Nosuch'"):
        trocket.Nosuch  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'trocket\.client' has no attribute 'Nosuch'"):
        client.Nosuch  # noqa: B018


BUDGETS = {
    "import trocket": 1,
    "from trocket import Message, Producer, PushConsumer": 180,
    "from trocket import Admin": 177,
    "from trocket.testing import Broker": 479,
}
"""Modules of trocket's own that a program loads at most: each takes 0.2 to 1 ms of its start."""


@pytest.mark.slow
@pytest.mark.parametrize(("program", "most"), BUDGETS.items(), ids=BUDGETS)
def test_a_program_loads_few_modules(program: str, most: int) -> None:
    loaded = run(f"import json, sys\n{program}\nprint(json.dumps(sorted(sys.modules)))")
    own = [name for name in loaded if name.partition(".")[0] == "trocket"]
    assert len(own) <= most, own


def test_importing_the_module_setup_builds_nothing() -> None:
    code = "import json, sys, trocket.setup; print(json.dumps(sorted(sys.modules)))"
    assert [name for name in run(code) if name.startswith(("setuptools", "distutils"))] == []
