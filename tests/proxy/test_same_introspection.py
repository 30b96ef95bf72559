"""The cases of tests/grpc_server/test_introspection.py, through a proxy."""

from ..grpc_server.test_introspection import *  # noqa: F403
