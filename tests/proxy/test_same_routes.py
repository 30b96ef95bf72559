"""The cases of tests/grpc_server/test_routes.py, through a proxy."""

from ..grpc_server.test_routes import *  # noqa: F403
