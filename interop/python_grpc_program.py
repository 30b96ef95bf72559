"""The scenario program of RocketMQ's gRPC client for Python, and its virtual environment."""

from __future__ import annotations

from pathlib import Path

from .wheel_environment import wheel_python

PYTHON_GRPC_WHEEL = "rocketmq-python-client"
PYTHON_GRPC_PROGRAM = Path(__file__).resolve().parent / "clients" / "python_grpc" / "scenarios.py"


def python_grpc_command(version: str, *arguments: str) -> list[str]:
    """The command that runs the program, in an environment that is created when it is missing.

    Args:
      version: of rocketmq-python-client.
    Raises: PeerError: as `wheel_python`.
    """
    wheel = f"{PYTHON_GRPC_WHEEL}=={version}"
    python = wheel_python(f"python-grpc-{version}", wheel, "rocketmq")
    return [str(python), str(PYTHON_GRPC_PROGRAM), *arguments]
