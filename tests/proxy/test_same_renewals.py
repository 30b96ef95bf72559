"""The cases of tests/grpc_server/test_renewals.py, through a proxy."""

from ..grpc_server.test_renewals import *  # noqa: F403
