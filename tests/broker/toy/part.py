"""Greetings: a subsystem of the smallest size, as an example of a part.

Clients greet a topic with request code GREET; the broker counts the greetings of each topic, saves
the counts in `greetings.json`, and has a metric of them.
"""

from __future__ import annotations

import json
from typing import Final

from trocket.broker.part import AtCut, Foundation, Part, Processors, SavedFile, Serving
from trocket.common.steps import Steps, one_step
from trocket.disk.state_file import StateFile
from trocket.remoting.channel import Answer, Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.metrics.families import Kind, Samples
from trocket.remoting.metrics.server_metrics import trocket_metric

GREET: Final = 20_001
"""The request code; the field `topic` says which topic is greeted."""

FILE: Final = "greetings.json"

GREETINGS: Final = trocket_metric("greetings_total", Kind.COUNTER, "Greetings of a topic.", "topic")


class Greetings(Part):
    """The greetings of each topic."""

    def __init__(self, foundation: Foundation) -> None:
        self._files = foundation.files
        self._counts: dict[str, int] = {}
        self._file = StateFile(FILE, "greetings", self._files.save, one_step(self._encode))
        self.saved = (SavedFile(file=self._file, at_cut=AtCut.KEPT),)

    def load_tables(self) -> None:
        """See `Part`."""
        self._files.load(FILE, self._decode)

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return {GREET: self._greet}

    def collect(self, samples: Samples) -> Steps[None]:
        """See `Part`."""
        samples.declare(GREETINGS)
        for topic, count in self._counts.items():
            samples.add(GREETINGS, count, topic)
        yield from ()

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        if self._counts.pop(topic, 0):
            self._file.changed()

    def _greet(self, request: RemotingCommand, channel: Channel) -> Answer:
        topic = request.ext_fields["topic"]
        self._counts[topic] = self._counts.get(topic, 0) + 1
        self._file.changed()
        return request.answer(ext_fields={"count": str(self._counts[topic])})

    def _encode(self) -> bytes:
        return json.dumps(self._counts).encode()

    def _decode(self, text: bytes) -> int:
        self._counts = {str(topic): int(count) for topic, count in json.loads(text).items()}
        return len(self._counts)
