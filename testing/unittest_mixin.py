"""A mixin for unittest: `class MyTests(RocketMQTestCase, unittest.TestCase)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .broker import Broker
from .configs import Config
from .names import unique_name

if TYPE_CHECKING:
    import unittest

    _Base = unittest.TestCase
else:
    _Base = object


class RocketMQTestCase(_Base):
    """A mixin that starts one broker for all tests of a class.

    Put it before TestCase or IsolatedAsyncioTestCase in the list of base classes. The broker is
    started before the first test of the class and closed after the last one.

    Attributes:
      rocketmq_broker: the broker.
      rocketmq_config: values that differ from RocketMQ's defaults; set it in your class if needed.
    """

    rocketmq_broker: ClassVar[Broker]
    rocketmq_config: ClassVar[Config] = {}

    @classmethod
    def setUpClass(cls) -> None:
        """Start the broker."""
        super().setUpClass()
        cls.rocketmq_broker = Broker(config=cls.rocketmq_config)
        cls.rocketmq_broker.start()
        cls.addClassCleanup(cls.rocketmq_broker.close)

    def rocketmq_topic(self, queues: int = 8, **attributes: Any) -> str:
        """Create a topic for the current test; it is deleted after the test.

        The arguments are those of `Broker.create_topic`.

        Returns: its name.
        """
        name = unique_name("topic", self.id().rpartition(".")[2])
        self.rocketmq_broker.create_topic(name, queues, **attributes)
        self.addCleanup(self.rocketmq_broker.delete_topic, name)
        return name

    def rocketmq_group(self) -> str:
        """The name of a consumer group that no other test uses; its first consumer creates it."""
        return unique_name("group", self.id().rpartition(".")[2])
