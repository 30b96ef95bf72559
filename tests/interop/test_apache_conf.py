"""The broker.conf of Apache's distribution, as it is, starts our broker."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from trocket.bench.frames import JSON_TYPE, build_frame
from trocket.interop.trocket_peer import TrocketCluster

# The header is the licence's own text, which stands in the file too.
BROKER_CONF = """\
# Licensed to the Apache Software Foundation (ASF) under one or more
# contributor license agreements.  See the NOTICE file distributed with
# this work for additional information regarding copyright ownership.
# The ASF licenses this file to You under the Apache License, Version 2.0
# (the "License"); you may not use this file except in compliance with
# the License.  You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
#  Unless required by applicable law or agreed to in writing, software
#  distributed under the License is distributed on an "AS IS" BASIS,
#  WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
#  See the License for the specific language governing permissions and
#  limitations under the License.

brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


GET_BROKER_CLUSTER_INFO = 106


def ask(address: str, code: int) -> dict[str, Any]:
    """Send a request without fields; the header and body of the answer, as text and JSON."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10.0) as connection:
        connection.sendall(build_frame(code, {}, b"", opaque=1, serialize_type=JSON_TYPE))
        with connection.makefile("rb") as stream:
            length, mark = struct.unpack(">ii", stream.read(8))
            content = stream.read(length - 4)
    header, body = content[:mark], content[mark:]
    return {"header": json.loads(header), "body": body.decode()}


@pytest.mark.slow
def test_the_broker_conf_of_apaches_distribution_starts_ours(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    cluster = TrocketCluster(tmp_path / "cluster", options=("-c", str(conf)))
    try:
        cluster.start()
        answer = ask(cluster.namesrv_address, GET_BROKER_CLUSTER_INFO)
        assert answer["header"]["code"] == 0
        assert '"DefaultCluster":["broker-a"]' in answer["body"]
        assert f'"{cluster.broker_address}"' in answer["body"]
        cluster.stop_broker()
    finally:
        cluster.close()
