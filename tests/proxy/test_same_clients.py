"""The cases of tests/grpc_server/test_clients.py, through a proxy."""

from ..grpc_server.test_clients import *  # noqa: F403
