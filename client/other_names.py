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
    "securityprotocol": _TLS,
    "saslplainusername": _CREDENTIALS,
    "saslplainpassword": _CREDENTIALS,
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
