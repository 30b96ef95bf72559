"""Names that programs know from other clients, each with what to write here instead.

They are those of aiokafka, nats.py, pika, Celery, rocketmq-client-python and RocketMQ's Java
client, as their documentation has them. Options are compared without case and `_`, so that one
entry stands for `groupId` and `group_id`. Pure.

Java counterpart: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SERVERS: Final = (
    "the name servers are the first argument, such as 'rocketmq://127.0.0.1:9876'"
    " (several: 'rocketmq://a:9876;b:9876')"
)
_GROUP: Final = "write group='...'"
_CREDENTIALS: Final = (
    "write credentials=Credentials('access key', 'secret key'), or put them into the URL:"
    " 'rocketmq://key:secret@host:9876'"
)
_TLS: Final = "write tls=True, or tls=TlsOptions(ca_file=...)"
_TOPICS: Final = (
    "a consumer takes subscriptions={'orders': '*'}; a producer's message has its topic:"
    " Message('orders', b'...')"
)
_START: Final = "write consume_from_where='first' (or 'last', the default)"
_HANDLER: Final = "give the handler to run: consumer.run(handler)"
_CONCURRENCY: Final = "give it to run: consumer.run(handler, concurrency=20)"
_AHEAD: Final = "write pull_threshold_for_queue: the messages of a queue that wait in memory"
_COUNT: Final = "write pull_batch_size, or give it to a call: poll(32), receive(32)"
_CONFIRMED: Final = (
    "each send waits for the broker's confirmation; with retry_when_not_stored_ok=True it is also"
    " repeated while the broker says that it is not stored safely"
)
_SETTLING: Final = (
    "a PushConsumer's loop acknowledges by itself: consumer.messages(auto_ack=False) leaves it to"
    " the program; a PullConsumer has auto_commit"
)
_KEYS: Final = "the keys of a message are str: Message('orders', b'...', keys='order-1')"

_OPTIONS: Final[Mapping[str, str]] = {
    # aiokafka, kafka-python
    "bootstrapservers": _SERVERS,
    "groupid": _GROUP,
    "clientid": "write instance_name='...'",
    "enableautocommit": "write auto_commit, of a PullConsumer",
    "autocommitintervalms": "write auto_commit_s, in seconds, of a PullConsumer",
    "autooffsetreset": _START,
    "maxpollrecords": _COUNT,
    "fetchmaxwaitms": "write suspend_s, in seconds",
    "valueserializer": "write serializer=...",
    "keyserializer": _KEYS,
    "valuedeserializer": "write deserializer=..., of a PushConsumer",
    "keydeserializer": _KEYS,
    "acks": _CONFIRMED,
    "enableidempotence": _CONFIRMED,
    "retries": "write retry_times",
    "requesttimeoutms": "write timeout_s, in seconds",
    "maxbatchsize": "write batch_size_max, with linger_s",
    "batchsize": "write batch_size_max, with linger_s (a consumer: pull_batch_size)",
    "lingerms": "write linger_s, in seconds",
    "compressiontype": "write compression='zlib' (or 'lz4', 'zstd')",
    "maxrequestsize": "write message_size_max",
    "sessiontimeoutms": "brokers forget a client after 120 s; write heartbeat_s, in seconds",
    "heartbeatintervalms": "write heartbeat_s, in seconds",
    "metadatamaxagems": "write route_refresh_s, in seconds",
    "partitionassignmentstrategy": "write strategy=AllocateMessageQueueAveragely()",
    "transactionalid": "write TransactionProducer(url, group='shop', check=check)",
    "securityprotocol": _TLS,
    "saslplainusername": _CREDENTIALS,
    "saslplainpassword": _CREDENTIALS,
    "subscriptions": "a PullConsumer has subscribe('orders'), when it is open",
    "loop": "the running event loop is used: leave it out",
    # nats.py
    "servers": _SERVERS,
    "url": _SERVERS,
    "durable": _GROUP,
    "queue": _GROUP,
    "stream": _TOPICS,
    "subject": _TOPICS,
    "cb": _HANDLER,
    "callback": _HANDLER,
    "handler": _HANDLER,
    "manualack": _SETTLING,
    "token": _CREDENTIALS,
    # pika
    "host": _SERVERS,
    "port": _SERVERS,
    "virtualhost": "write namespace='...'",
    "exchange": _TOPICS,
    "routingkey": "a message has one tag: Message('orders', b'...', tags='created')",
    "prefetchcount": _AHEAD,
    "noack": _SETTLING,
    "autoack": _SETTLING,
    "onmessagecallback": _HANDLER,
    "sslcontext": "write tls=..., with the ssl.SSLContext",
    "ssloptions": _TLS,
    "ssl": _TLS,
    # Celery
    "broker": _SERVERS,
    "brokerurl": _SERVERS,
    "backend": "there is no backend of results: producer.request(message) waits for a reply",
    "ackslate": _SETTLING,
    "workerconcurrency": _CONCURRENCY,
    "maxretries": "write max_reconsume_times (a consumer) or retry_times (a producer)",
    # rocketmq-client-python and Java's clients
    "nameserveraddress": _SERVERS,
    "nameserver": _SERVERS,
    "nameservers": _SERVERS,
    "namesrvaddr": _SERVERS,
    "namesrv": _SERVERS,
    "namesrvs": _SERVERS,
    "endpoints": _SERVERS,
    "address": _SERVERS,
    "addresses": _SERVERS,
    "hosts": _SERVERS,
    "groupname": _GROUP,
    "consumergroup": _GROUP,
    "producergroup": _GROUP,
    "accesskey": _CREDENTIALS,
    "secretkey": _CREDENTIALS,
    "username": _CREDENTIALS,
    "password": _CREDENTIALS,
    "sessioncredentials": _CREDENTIALS,
    "topic": _TOPICS,
    "topics": _TOPICS,
    "subscription": _TOPICS,
    "expression": _TOPICS,
    "tags": _TOPICS,
    "orderly": "write is_orderly=True, of a consumer; any producer sends in order",
    "model": "write message_model='clustering' (or 'broadcasting')",
    "consumethreadmin": _CONCURRENCY,
    "consumethreadmax": _CONCURRENCY,
    "threadcount": _CONCURRENCY,
    "concurrency": _CONCURRENCY,
    "consumemessagebatchmaxsize": "give it to run: consumer.run(handler, batch=...)",
    "messagelistener": _HANDLER,
    "sendmsgtimeout": "write send_timeout_s, in seconds",
    "retrytimeswhensendfailed": "write retry_times",
    "compressmsgbodyoverhowmuch": "write compress_over, in bytes",
    "compresslevel": "write compression_level",
    "maxmessagesize": "write message_size_max, in bytes",
    "allocatemessagequeuestrategy": "write strategy=AllocateMessageQueueAveragely()",
    "enablemsgtrace": "write trace=True",
    "messagetrace": "write trace=True",
    "usetls": _TLS,
    "transactionlistener": "write check=..., of a TransactionProducer",
    "instance": "write instance_name='...'",
}


def option_elsewhere(name: str) -> str | None:
    """What to write for an option that another client has; None: no client of these has it."""
    return _OPTIONS.get(name.replace("_", "").lower())


_OPEN: Final = "open it by `with` or `async with`, or by open() and close()"
_CLOSE: Final = "the end of the `with` block closes it; outside of a block call close()"

_OPENED: Final[Mapping[str, str]] = {
    "start": _OPEN,
    "connect": _OPEN,
    "shutdown": _CLOSE,
    "disconnect": _CLOSE,
    "stop": _CLOSE,
    "set_name_server_address": _SERVERS,
    "set_namesrv_addr": _SERVERS,
    "set_namesrv_domain": _SERVERS,
    "set_name_server_domain": _SERVERS,
    "set_group": _GROUP,
    "set_instance_name": "write instance_name='...' in the constructor",
    "set_session_credentials": _CREDENTIALS,
    "set_timeout": "write timeout_s, in seconds, in the constructor",
    "set_message_trace": "write trace=True in the constructor",
    "bootstrap_connected": "open() raises an error if no server can be reached",
}

_BY_KEY: Final = "write send(Message('orders', b'...', sharding_key='order-1'))"
_TRANSACTION: Final = (
    "with a TransactionProducer write `async with producer.transaction(message):` (in"
    " trocket.blocking without `async`)"
)
_SEND: Final = "write send(Message('orders', b'...'))"
_SOON: Final = "write send_soon(message), which gives a Delivery"

PRODUCER: Final[Mapping[str, str]] = {
    **_OPENED,
    "send_sync": "write send(message)",
    "send_async": _SOON,
    "send_and_wait": _SEND,
    "send_message": _SEND,
    "send_one_way": "write send_oneway(message)",
    "send_oneway_orderly": _BY_KEY,
    "send_orderly": _BY_KEY,
    "send_orderly_with_sharding_key": _BY_KEY,
    "send_message_in_transaction": "a TransactionProducer has send_in_transaction(message, local)",
    "send_many": "write send_batch(messages)",
    "publish": _SEND,
    "publish_async": _SOON,
    "produce": _SOON,
    "basic_publish": _SEND,
    "apply_async": _SEND,
    "delay": "write send(Message('orders', b'...', delay_s=60))",
    "flush": "write drain(): it waits until the messages of send_soon are confirmed",
    "poll": "confirmations need no call: drain() waits for those of send_soon",
    "partitions_for": "write queues('orders')",
    "partitions_for_topic": "write queues('orders')",
    "transaction": _TRANSACTION,
    "begin_transaction": _TRANSACTION,
    "commit_transaction": _TRANSACTION,
    "init_transactions": _TRANSACTION,
    "abort_transaction": _TRANSACTION,
    "metrics": "the brokers have metrics; `trocket top` shows them",
    "set_compress_level": "write compression_level=5 in the constructor",
    "set_max_message_size": "write message_size_max, in bytes, in the constructor",
}
"""Methods of producers."""

_CONSUMER: Final[Mapping[str, str]] = {
    **_OPENED,
    "set_message_model": "write message_model='broadcasting' in the constructor",
    "set_thread_count": _CONCURRENCY,
    "set_message_batch_max_size": "give it to run: consumer.run(handler, batch=...)",
    "register_message_listener": _HANDLER,
    "set_message_listener": _HANDLER,
    "basic_consume": _HANDLER,
    "start_consuming": _HANDLER,
    "stop_consuming": "write stop()",
    "consume": _HANDLER,
    "basic_qos": _AHEAD,
    "set_consume_from_where": _START,
    "partitions_for_topic": "write queues",
    "acknowledge": "a PushConsumer's message has ack(), a SimpleConsumer has ack(message)",
    "basic_ack": "a PushConsumer's message has ack(), a SimpleConsumer has ack(message)",
    "basic_nack": "a PushConsumer's message has retry(), a SimpleConsumer has"
    " change_invisible(message, seconds)",
    "negative_acknowledge": "a PushConsumer's message has retry()",
}

PUSH_CONSUMER: Final[Mapping[str, str]] = {
    **_CONSUMER,
    "subscribe": "give the topics to the constructor, PushConsumer(url, group='billing',"
    " subscriptions={'orders': '*'}), and the handler to run(handler)",
    "unsubscribe": "the topics are those of the constructor; pause(['orders']) stops one",
    "getone": "write receive()",
    "get_one": "write receive()",
    "getmany": "write receive() for each message; a PullConsumer has poll(32)",
    "fetch": "write receive() for each message; a PullConsumer has poll(32)",
    "poll": "write receive(); a PullConsumer has poll(32)",
    "ack": "the message has it: message.ack()",
    "next_msg": "write receive()",
}
"""Methods of a push consumer."""

PULL_CONSUMER: Final[Mapping[str, str]] = {
    **_CONSUMER,
    "getone": "write poll(1)",
    "getmany": "write poll(32, timeout_s=1)",
    "fetch": "write poll(32, timeout_s=1)",
    "receive": "write poll(32, timeout_s=1)",
    "run": "write a loop around poll(); a PushConsumer has run(handler)",
    "end_offsets": "write end_offset(queue)",
    "beginning_offsets": "write begin_offset(queue)",
    "offsets_for_times": "write offset_at(queue, timestamp_ms)",
    "seek_to_beginning": "write seek_to_begin(queue)",
    "highwater": "write end_offset(queue)",
    "commit_sync": "write commit()",
    "commit_async": "write commit()",
    "lag": "write end_offset(queue), less position(queue); in a shell `trocket lag GROUP`",
    "consumer_lag": "write end_offset(queue), less position(queue)",
    "subscription": "write assignment: the queues",
    "seek_to_timestamp": "write seek_to_time(queue, timestamp_ms)",
    "messages": "write a loop around poll(32)",
    "ack": "write commit(): a PullConsumer commits positions",
}
"""Methods of a pull consumer."""

SIMPLE_CONSUMER: Final[Mapping[str, str]] = {
    **_CONSUMER,
    "getone": "write receive(1)",
    "getmany": "write receive(16, wait_s=1)",
    "fetch": "write receive(16, wait_s=1)",
    "poll": "write receive(16, wait_s=1)",
    "run": "write a loop around receive(); a PushConsumer has run(handler)",
    "commit": "write ack(message): this consumer has no offsets",
    "nack": "write change_invisible(message, 0)",
    "change_invisible_duration": "write change_invisible(message, seconds)",
}
"""Methods of a simple consumer."""

ADMIN: Final[Mapping[str, str]] = {
    **_OPENED,
    "list_topics": "write topics()",
    "fetch_all_topic_list": "write topics()",
    "describe_topics": "write topic('orders')",
    "create_topics": "write create_topic('orders')",
    "delete_topics": "write delete_topic('orders')",
    "list_consumer_groups": "write groups()",
    "describe_consumer_groups": "write group('billing')",
    "delete_consumer_groups": "write delete_group('billing')",
}
"""Methods of Admin."""

RECEIVED: Final[Mapping[str, str]] = {
    "value": "write body, or text; the messages of a PushConsumer with a deserializer have it",
    "data": "write body",
    "payload": "write body",
    "key": "write keys",
    "tag": "write tags",
    "headers": "write user_properties",
    "offset": "write queue_offset",
    "partition": "write queue_id",
    "id": "write message_id",
    "msg_id": "write message_id",
    "subject": "write topic",
    "timestamp": "write born_timestamp_ms, or store_timestamp_ms",
    "born_timestamp": "write born_timestamp_ms",
    "store_timestamp": "write store_timestamp_ms",
    "get_property": "write properties['name']",
    "get_body": "write body",
    "get_tags": "write tags",
    "get_keys": "write keys",
    "set_body": "write copy_to('orders'), a message to send",
    "ack": "a PushConsumer's message has it; a SimpleConsumer has ack(message), a PullConsumer"
    " commit()",
    "nak": "a PushConsumer's message has retry()",
    "nack": "a PushConsumer's message has retry()",
    "term": "a PushConsumer's message has retry(-1), which sends it to the dead letters",
    "in_progress": "a PushConsumer has consume_timeout_s, a SimpleConsumer"
    " change_invisible(message, seconds)",
    "delivery_tag": "a PushConsumer's message has ack() and retry()",
    "retry": "a PushConsumer's message has it; a SimpleConsumer has change_invisible(message,"
    " seconds), and a PullConsumer returns a message again after seek(queue, offset)",
    "reject": "a PushConsumer's message has retry(-1), which sends it to the dead letters",
    "requeue": "a PushConsumer's message has retry()",
    "json": "write json.loads(message.body), or give the PushConsumer deserializer=json.loads",
    "decode": "write text: the body as str",
    "reply": "write producer.reply(message, body)",
    "respond": "write producer.reply(message, body)",
    "redelivered": "a PushConsumer's message has reconsume_times",
    "num_delivered": "a PushConsumer's message has reconsume_times",
    "delivery_attempt": "a PushConsumer's message has reconsume_times",
}
"""Attributes of received messages."""

RESULT: Final[Mapping[str, str]] = {
    "msg_id": "write message_id",
    "offset": "write queue_offset",
    "partition": "write queue.queue_id",
    "seq": "write queue_offset",
    "ok": "write result.status is SendStatus.SEND_OK",
    "get": "it is the result already: write result.message_id, result.queue_offset",
    "topic": "write queue.topic",
    "queue_id": "write queue.queue_id",
}
"""Attributes of the result of a send."""

_OUTCOME: Final = "write `await delivery`, or in trocket.blocking delivery.result()"
_OF_RESULT: Final = (
    "the result has it: `(await delivery)`, or in trocket.blocking delivery.result()"
)

DELIVERY: Final[Mapping[str, str]] = {
    "result": "write `await delivery`",
    "get": _OUTCOME,
    "done": "write is_done",
    "exception": "write error",
    "add_done_callback": "write a task that does `await delivery`; drain() waits for all of them",
    "status": _OF_RESULT,
    "message_id": _OF_RESULT,
    "queue_offset": _OF_RESULT,
}
"""Attributes of the delivery of a `send_soon`."""

_WRITE_PRODUCER: Final = "write Producer(client), and send with that"
_WRITE_CONSUMER: Final = (
    "write PushConsumer(client, group='billing', subscriptions={'orders': '*'})"
)

CLIENT: Final[Mapping[str, str]] = {
    "start": _OPEN,
    "connect": _OPEN,
    "stop": _CLOSE,
    "shutdown": _CLOSE,
    "disconnect": _CLOSE,
    "drain": _CLOSE,
    "send": _WRITE_PRODUCER,
    "publish": _WRITE_PRODUCER,
    "producer": _WRITE_PRODUCER,
    "create_producer": _WRITE_PRODUCER,
    "subscribe": _WRITE_CONSUMER,
    "consumer": _WRITE_CONSUMER,
    "create_consumer": _WRITE_CONSUMER,
    "channel": "a client has no channels: write Producer(client), PushConsumer(client, ...)",
    "jetstream": "a client has no contexts: write Producer(client), PushConsumer(client, ...)",
}
"""Methods of a client."""
