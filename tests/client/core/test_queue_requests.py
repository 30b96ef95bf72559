"""Requests about one queue."""

from __future__ import annotations

import pytest

from trocket.client.core import queue_requests
from trocket.client.core.queue_requests import QueueRequest
from trocket.remoting.bodies import MessageQueue, SubscriptionData
from trocket.remoting.headers import encode_header

QUEUE = MessageQueue("T", "b", 3)


@pytest.mark.parametrize(
    "request_of_queue",
    [
        queue_requests.max_offset(QUEUE),
        queue_requests.min_offset(QUEUE),
        queue_requests.search_offset(QUEUE, 1),
        queue_requests.committed_offset(QUEUE, "G"),
        queue_requests.commit_offset(QUEUE, "G", 5),
        queue_requests.pull(QUEUE, SubscriptionData(topic="T"), "G", 0, count=1),
    ],
    ids=lambda request: request.code.name,
)
def test_a_request_names_the_broker_which_a_proxy_hands_it_to(
    request_of_queue: QueueRequest[object],
) -> None:
    assert encode_header(request_of_queue.header)["bname"] == "b"
