"""The C extension of the package, and the switches; everything else is in pyproject.toml.

`optional`: where it cannot be built, for want of a C compiler, trocket runs in pure Python. With
TROCKET_PURE in the environment it is left out, and the wheel is for all platforms; with
TROCKET_CLIENT the distribution is `trocket-client` (deploy/wheel_parts.py).
"""

import os
import runpy
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path(__file__).parent / "native"
parts = runpy.run_path(str(FOLDER.parent / "deploy" / "wheel_parts.py"))
sources = runpy.run_path(str(FOLDER / "sources.py"))
extension = Extension(
    "trocket.native._native",
    sorted(f"native/{path.name}" for path in FOLDER.glob("*.c")),
    depends=sorted(f"native/{path.name}" for path in FOLDER.glob("*.h")),
    define_macros=[("TROCKET_SOURCES_CRC", str(sources["sources_crc"](FOLDER)))],
    optional=True,
)
setup(
    script_name="setup.py",  # which is not a module of the package in the same folder
    ext_modules=[] if sources["is_pure"](os.environ) else [extension],
    **parts["classes"](os.environ, sources["is_on"]),
)
