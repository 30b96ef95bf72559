"""The broker object: a connection of FastStream to a RocketMQ cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, cast

import anyio
from fast_depends import Provider
from faststream import AckPolicy, ContextRepo
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from ...client.connection.client import Client
from ...client.connection.options import ClientOptions
from ...client.errors import ClientError, RouteNotFoundError
from ...client.messages.message import SendResult
from ...client.sending.producer import Producer
from ...common.topic_names import AUTO_CREATE_TOPIC
from .configs import RocketBrokerConfig
from .message import Delivery, RocketMessage
from .producer import RocketProducer
from .registrator import RocketRegistrator
from .response import REQUEST_TIMEOUT_S, RocketPublishCommand

PRODUCER_GROUP: Final = "faststream-producers"

GRACEFUL_TIMEOUT_S: Final = 15.0
"""FastStream's own default."""

_ID_LENGTH: Final = 32
"""Characters of a message's id in log lines: all, as the first are those of its producer."""


class _Logs(DefaultLoggerStorage):
    """The logger of messages, `faststream.access.rocketmq`, which prints to standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._width = 0

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Leave room for a topic's name."""
        self._width = max(self._width, len(params.get("topic", "")))

    def get_logger(self, *, context: ContextRepo) -> Any:
        """The logger, made with the first call."""
        known = self._get_logger_ref()
        if known is not None:
            return known
        columns = f"%(topic)-{self._width or 1}s | %(message_id)-{_ID_LENGTH}s"
        made = get_broker_logger(
            name="rocketmq",
            default_context={"topic": "", "group": ""},
            message_id_ln=_ID_LENGTH,
            fmt=f"%(asctime)s %(levelname)-8s - {columns} - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(made)
        return made


class RocketBroker(RocketRegistrator, BrokerUsecase[Delivery, Client, RocketBrokerConfig]):
    """Publishes to RocketMQ, and consumes from it.

    Args:
      url: trocket's URL of a cluster: `rocketmq://key:secret@host:9876;host:9876?namespace=shop`.
      client_options: see ClientOptions; `tls`, for example.
      ack_policy: of subscribers that do not have their own; default NACK_ON_ERROR.
      graceful_timeout: seconds that handlers have to end when the broker object stops.
      specification_url: for AsyncAPI, instead of the name servers.
      others: as of FastStream's other brokers.

    Raises: ConfigurationError: the URL or an option is invalid.
    """

    _connection: Client | None

    def __init__(
        self,
        url: str = "rocketmq://127.0.0.1:9876",
        *,
        client_options: ClientOptions | None = None,
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = GRACEFUL_TIMEOUT_S,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[RocketRegistrator] = (),
        id_generator: Any = gen_cor_id,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        specification_url: str | Iterable[str] | None = None,
        protocol: str = "rocketmq",
        protocol_version: str = "5.0",
        description: str | None = None,
        tags: Iterable[Any] = (),
    ) -> None:
        self._url = url
        self._client_options: ClientOptions = client_options or {}
        self._sender: Producer | None = None
        servers = self._made_client().url.name_servers
        shown: Any = specification_url or servers
        super().__init__(
            config=RocketBrokerConfig(
                producer=RocketProducer(parser, decoder),
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                ack_policy=ack_policy,
                graceful_timeout=graceful_timeout,
                id_generator=id_generator,
                extra_context={"broker": self},
                logger=make_logger_state(
                    logger=logger, log_level=log_level, default_storage_cls=_Logs
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or Provider(),
                    context=context or ContextRepo(),
                ),
            ),
            specification=BrokerSpec(
                url=[shown] if isinstance(shown, str) else list(shown),
                protocol=protocol,
                protocol_version=protocol_version,
                description=description,
                tags=tags,
                security=None,
            ),
            routers=routers,
        )

    def _made_client(self) -> Client:
        return Client(self._url, **self._client_options)

    # Lifecycle

    async def _connect(self) -> Client:
        client = await self._made_client().open()
        try:
            self._sender = await Producer(client, group=PRODUCER_GROUP).open()
        except BaseException:
            await client.close()
            raise
        own = self.config.broker_config
        own.client = client
        cast("RocketProducer", own.producer).connect(
            self._sender, own.fd_config._serializer, own.broker_codec
        )
        return client

    async def start(self) -> None:
        """Connect, and start all subscribers.

        Raises: ClientError: no name server answers, or a broker refuses.
        """
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers, and disconnect; it may be started again."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            client, self._connection = self._connection, None
            sender, self._sender = self._sender, None
            own = self.config.broker_config
            cast("RocketProducer", own.producer).disconnect()
            own.client = None
            try:
                if sender is not None:
                    await sender.close()
            finally:
                if client is not None:
                    await client.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers.

        Args:
          timeout: seconds to wait for the answer; None: the client's `timeout_s`.
        """
        if self._connection is None:
            return False
        with anyio.move_on_after(timeout):
            try:
                await self._connection.route(AUTO_CREATE_TOPIC, is_fresh=True, wait_s=0.0)
            except RouteNotFoundError:
                return True  # it has answered
            except ClientError:
                return False
            return True
        return False

    # Messages

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        delay_s: float | None = None,
        sharding_key: str | None = None,
        timeout: float | None = None,
    ) -> SendResult | None:
        """Send a message, and wait until a broker has stored it.

        Args:
          message: anything that FastStream encodes: bytes, str, JSON, a model of pydantic.
          topic: where to.
          keys: one key or several by which the message can be queried.
          tag: by which subscribers select.
          headers: user properties; each value becomes a str, and empty ones are left out.
          correlation_id: for the header of this name; None: a new one.
          reply_to: a topic for the handler's answer.
          delay_s: seconds after which it is delivered, 0 to three days.
          sharding_key: messages with the same key go to the same queue.
          timeout: seconds for all attempts; None: the client's `send_timeout_s`.

        Returns: its id, queue and offset; None from a TestRocketBroker.
        Raises: ClientError: see trocket's `Producer.send`; MessageRefusedError, which is one: a
          name or value is not valid.
        """
        command = RocketPublishCommand(
            message,
            topic=topic,
            keys=keys,
            tag=tag,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            delay_s=delay_s,
            sharding_key=sharding_key,
            timeout_s=timeout,
        )
        result: SendResult | None = await self._basic_publish(
            command, producer=self.config.producer
        )
        return result

    async def request(
        self,
        message: Any,
        topic: str,
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> RocketMessage:
        """Send a request, by RocketMQ's own request and reply, and wait for the handler's answer.

        Args:
          message, topic, keys, tag, headers, correlation_id: see `publish`.
          timeout: seconds for the send and the answer together, > 0.

        Raises: TimeoutError: there was no answer in time; ClientError: see `publish`.
        """
        command = RocketPublishCommand(
            message,
            topic=topic,
            keys=keys,
            tag=tag,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMessage = await self._basic_request(command, producer=self.config.producer)
        return reply
