"""The cases of tests/grpc_server/test_receiving.py, through a proxy."""

from ..grpc_server.test_receiving import *  # noqa: F403
