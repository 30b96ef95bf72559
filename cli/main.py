"""Entry point of the `trocket` command.

All commands are typer's, in `app.py`. The servers' commands bypass typer when their flags are
right (`servers.py`): `trocket up` must be ready within half a second of the process's start, and
importing typer alone takes a sixth of that (docs/dependencies.md).

Every installation has this entry point; the packages it needs come with the extra `cli`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..common.outputs import EXIT_FAILED, run_guarded

_PACKAGES = ("trio", "lark", "lz4", "zstandard", "typer", "rich")
"""What the extra `cli` installs."""
_INTEROP_PACKAGES = ("pytest", "xdist", "pytest_html", "pytest_metadata", "psutil")
"""What the extra `interop` installs."""

_TLS_PACKAGES = ("cryptography",)
"""What the extra `tls` installs."""

_POSIX_MODULES = ("fcntl", "resource")
"""Modules of Python that Windows does not have."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 success, 1 failure, 2 wrong flags or settings.

    Args:
      arguments: without the program's name; None: those of this process.
    """
    from .error_lines import errors_as_json, say_error
    from .missing import forget

    words = list(sys.argv[1:] if arguments is None else arguments)
    forget()
    try:
        return run_guarded(lambda: _run(words), say_error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _PACKAGES:
            text = "the command needs more packages: pip install 'trocket[cli]'"
        elif missing in _INTEROP_PACKAGES:
            text = "interop needs more packages: pip install 'trocket[cli,interop]'"
        elif missing in _TLS_PACKAGES:
            text = "tls needs one more package: pip install 'trocket[cli,tls]'"
        elif missing in _POSIX_MODULES:
            text = "the command needs Linux or macOS; here only trocket's client runs"
        else:
            raise
        say_error(text)
        return EXIT_FAILED
    finally:
        errors_as_json.set(False)


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        from .. import __version__

        print(f"trocket {__version__}")
        return 0
    from .servers import run_usual

    status = run_usual(words)
    if status is not None:
        return status
    from .app import run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
