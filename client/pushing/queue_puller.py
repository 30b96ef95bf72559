"""The pulls of a push consumer: one task for each assigned queue.

Java counterpart: PullMessageService, DefaultMQPushConsumerImpl.pullMessage.
"""

from __future__ import annotations

import logging
from functools import partial

import anyio
import anyio.lowlevel

from ...remoting.bodies import MessageModel, MessageQueue
from ...remoting.response_codes import ResponseCode
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..core.queue_requests import PullStatus
from ..core.topics import is_retry_topic
from ..errors import ClientError, ServerError
from ..options.consumer_options import PULL_TIMEOUT_S
from ..options.push_options import PULL_RETRY_S, REBALANCE_RETRY_S, SUSPEND_S, PushConsumerConfig
from ..pulling.offsets import OffsetStore, initial_offset
from ..pulling.pulls import PullFailureLog, PullResult, pull
from ..pulling.sql_check import explain_failed_pull
from ..tasks import clock
from .consume_result_service import ConsumeResultService
from .filter_servers import FilterServers
from .pushed_message import AssignedQueue, PushedMessageFactory
from .ready_messages import ReadyMessages

logger = logging.getLogger(__name__)


class QueuePuller:
    """Pulls the messages of one consumer's queues into its ReadyMessages.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      offsets: where each queue begins.
      ready: gets the messages.
      results: delivers the messages of orderly queues, and settles all.
      pushed: makes the messages.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        *,
        offsets: OffsetStore,
        ready: ReadyMessages,
        results: ConsumeResultService,
        filter_servers: FilterServers,
        pushed: PushedMessageFactory,
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._offsets = offsets
        self._ready = ready
        self._results = results
        self._filter_servers = filter_servers
        self._is_clustering = config.message_model is MessageModel.CLUSTERING
        self._pushed = pushed
        self._failures = PullFailureLog()

    async def pull_queue(self, assigned: AssignedQueue) -> bool:
        """Pull from a queue until it is dropped; each queue has a task for this.

        Returns: False: the queue cannot be consumed at the moment.
        """
        with assigned.scope:
            try:
                assigned.is_paused = self._ready.is_paused(assigned.queue)
                assigned.next_offset = await self._first_offset(assigned.queue)
                while not assigned.is_dropped:
                    await assigned.wait_for_room()
                    try:
                        await self._pull_once(assigned)
                    except ClientError as error:
                        await self._after_pull_failed(assigned, error)
            except ClientError as error:
                level = failure_level(error)
                logger.log(level, "%s cannot be consumed yet: %s", assigned.queue, error)
                self._client.refresh_soon()  # its broker may have left
                # The next rebalance begins with it at once: without a pause a server that refuses
                # would be asked a thousand times a second.
                await anyio.sleep(REBALANCE_RETRY_S)
                return False
        return True

    async def _pull(self, assigned: AssignedQueue, filter_server: str | None = None) -> PullResult:
        config, queue = self._config, assigned.queue
        known = self._offsets.known(queue) if self._is_clustering else None
        return await pull(
            self._client,
            queue,
            assigned.subscription,
            self._group,
            assigned.next_offset,
            count=config.pull_batch_size,
            suspend_s=config.suspend_s,
            timeout_s=config.suspend_s + PULL_TIMEOUT_S - SUSPEND_S,
            commit_offset=known or 0,
            broker_id=assigned.broker_id,
            filter_server=filter_server,
        )

    async def _pull_once(self, assigned: AssignedQueue) -> None:
        queue = assigned.queue
        assigned.process_queue.last_pull_ms = clock.monotonic_ms()
        if assigned.subscription.class_filter_mode:
            result = await self._filter_servers.pull(queue, partial(self._pull, assigned))
        else:
            result = await self._pull(assigned)
        assigned.broker_id = result.suggest_which_broker_id
        if assigned.scope.cancel_called:  # revoked, or the consumer was stopped
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: the queue does not have the offset %d (any more); continuing at %d",
                queue,
                assigned.next_offset,
                result.next_begin_offset,
            )
            assigned.process_queue.clear()
            self._offsets.update(queue, result.next_begin_offset)
            await self._offsets.persist([queue])
        assigned.next_offset = result.next_begin_offset
        self._on_pulled(result, assigned)

    def _on_pulled(self, result: PullResult, assigned: AssignedQueue) -> None:
        """Store the messages of a pull in the ProcessQueue, and deliver them."""
        if result.messages:
            pushed = self._pushed(result.messages, assigned)
            assigned.process_queue.put(pushed, max_offset=result.max_offset)
            if self._config.is_orderly:
                self._results.hand_out_next(assigned)
            else:
                self._ready.put(pushed)
        elif assigned.process_queue.count == 0:
            # The broker filtered all messages out: commit an offset behind them.
            self._offsets.update(assigned.queue, result.next_begin_offset)

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Source: RebalancePushImpl.computePullFromWhereWithException."""
        kept = await self._offsets.read(queue)
        if kept is not None and kept >= 0:
            return kept
        if is_retry_topic(queue.topic):
            return 0
        config = self._config
        return await initial_offset(
            self._client, queue, config.consume_from_where, config.consume_timestamp_ms
        )

    async def _after_pull_failed(self, assigned: AssignedQueue, error: ClientError) -> None:
        # Cancelling the program also closes connections: do not log that.
        await anyio.lowlevel.checkpoint_if_cancelled()
        code = error.code if isinstance(error, ServerError) else None
        if code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ):
            # After a restart, a broker has not received the group's heartbeat yet.
            self._client.heartbeat_soon()
        else:
            self._client.refresh_soon()
        assigned.broker_id = 0
        found = await explain_failed_pull(self._client, self._group, assigned.subscription, error)
        self._failures.log(assigned.queue, found, PULL_RETRY_S)
        await anyio.sleep(PULL_RETRY_S)
