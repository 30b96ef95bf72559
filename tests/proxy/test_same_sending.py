"""The cases of tests/grpc_server/test_sending.py, through a proxy."""

from ..grpc_server.test_sending import *  # noqa: F403
from ..grpc_server.test_sending import _topics  # noqa: F401 - a fixture
