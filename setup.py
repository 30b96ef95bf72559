"""The C extension of the package, and the switches; everything else is in pyproject.toml.

`optional`: where it cannot be built, for want of a C compiler, trocket runs in pure Python. With
TROCKET_PURE in the environment it is left out, and the wheel is for all platforms; with
TROCKET_CLIENT the distribution is `trocket-client` (deploy/wheel_parts.py).
"""

import os
import runpy
from pathlib import Path


def build() -> None:
    """Run setuptools."""
    from setuptools import Extension, setup

    folder = Path(__file__).parent / "native"
    parts = runpy.run_path(str(folder.parent / "deploy" / "wheel_parts.py"))
    sources = runpy.run_path(str(folder / "sources.py"))
    extension = Extension(
        "trocket.native._native",
        sorted(f"native/{path.name}" for path in folder.glob("*.c")),
        depends=sorted(f"native/{path.name}" for path in folder.glob("*.h")),
        define_macros=[("TROCKET_SOURCES_CRC", str(sources["sources_crc"](folder)))],
        optional=True,
    )
    setup(
        script_name="setup.py",  # which is not a module of the package in the same folder
        ext_modules=[] if sources["is_pure"](os.environ) else [extension],
        **parts["classes"](os.environ, sources["is_on"]),
    )


# In a checkout this file is also the module `trocket.setup`, which tools that import all modules of
# a package load. Pip and setuptools run it as the program that it is.
if __name__ == "__main__":
    build()
