"""The administration client for programs with threads."""

from __future__ import annotations

from typing import Final, Unpack

from ..client.admin import Admin as AsyncAdmin
from ..client.checks.misuse import explained, knows_elsewhere
from ..client.checks.other_names import ADMIN
from ..client.connection.options import ClientOptions
from .client import Client, Member
from .forwarded import forwarded


@knows_elsewhere(ADMIN)
class Admin(Member[AsyncAdmin]):
    """Administers a cluster; the blocking `trocket.client.Admin`.

    Use: `with Admin("rocketmq://127.0.0.1:9876") as admin:`.

    Names of topics and groups are given and returned without the client's namespace. A method that
    asks several brokers returns what all of them answered; if some brokers fail, it raises
    BrokersError, which names them and holds the other answers in `partial`. A request that a broker
    does not support raises ServerError with the code REQUEST_CODE_NOT_SUPPORTED.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      options: see ClientOptions; allowed only with a URL.

    Raises: ConfigurationError: the URL or an option is invalid.
    """

    @explained
    def __init__(self, client: str | Client, **options: Unpack[ClientOptions]) -> None:
        super().__init__(client, lambda inner: AsyncAdmin(inner, **options))

    # Topics

    topics: Final = forwarded(AsyncAdmin.topics)
    topic: Final = forwarded(AsyncAdmin.topic)
    create_topic: Final = forwarded(AsyncAdmin.create_topic)
    delete_topic: Final = forwarded(AsyncAdmin.delete_topic)
    update_topic_perm: Final = forwarded(AsyncAdmin.update_topic_perm)
    order_conf: Final = forwarded(AsyncAdmin.order_conf)
    put_order_conf: Final = forwarded(AsyncAdmin.put_order_conf)
    delete_order_conf: Final = forwarded(AsyncAdmin.delete_order_conf)
    topic_stats: Final = forwarded(AsyncAdmin.topic_stats)
    topic_offsets: Final = forwarded(AsyncAdmin.topic_offsets)
    topic_groups: Final = forwarded(AsyncAdmin.topic_groups)
    system_topics: Final = forwarded(AsyncAdmin.system_topics)
    queue_units: Final = forwarded(AsyncAdmin.queue_units)

    static_topic: Final = forwarded(AsyncAdmin.static_topic)
    create_static_topic: Final = forwarded(AsyncAdmin.create_static_topic)
    move_static_topic: Final = forwarded(AsyncAdmin.move_static_topic)

    # Groups

    groups: Final = forwarded(AsyncAdmin.groups)
    group: Final = forwarded(AsyncAdmin.group)
    create_group: Final = forwarded(AsyncAdmin.create_group)
    delete_group: Final = forwarded(AsyncAdmin.delete_group)
    progress: Final = forwarded(AsyncAdmin.progress)
    all_progress: Final = forwarded(AsyncAdmin.all_progress)
    group_topics: Final = forwarded(AsyncAdmin.group_topics)
    subscription: Final = forwarded(AsyncAdmin.subscription)

    # Clients

    clients: Final = forwarded(AsyncAdmin.clients)
    members: Final = forwarded(AsyncAdmin.members)
    producers: Final = forwarded(AsyncAdmin.producers)
    running_info: Final = forwarded(AsyncAdmin.running_info)
    consume_directly: Final = forwarded(AsyncAdmin.consume_directly)
    all_producers: Final = forwarded(AsyncAdmin.all_producers)

    # Offsets

    offsets: Final = forwarded(AsyncAdmin.offsets)
    lag: Final = forwarded(AsyncAdmin.lag)
    committed_offset: Final = forwarded(AsyncAdmin.committed_offset)
    reset_offset: Final = forwarded(AsyncAdmin.reset_offset)
    consume_spans: Final = forwarded(AsyncAdmin.consume_spans)
    clone_offsets: Final = forwarded(AsyncAdmin.clone_offsets)
    clone_offsets_on_brokers: Final = forwarded(AsyncAdmin.clone_offsets_on_brokers)
    correction_offsets: Final = forwarded(AsyncAdmin.correction_offsets)

    # Pops

    popped: Final = forwarded(AsyncAdmin.popped)
    popped_by: Final = forwarded(AsyncAdmin.popped_by)
    request_modes: Final = forwarded(AsyncAdmin.request_modes)
    set_request_mode: Final = forwarded(AsyncAdmin.set_request_mode)

    # Messages

    message: Final = forwarded(AsyncAdmin.message)
    is_intact: Final = forwarded(AsyncAdmin.is_intact)
    messages_by_key: Final = forwarded(AsyncAdmin.messages_by_key)
    messages_by_time: Final = forwarded(AsyncAdmin.messages_by_time)
    dead_letters: Final = forwarded(AsyncAdmin.dead_letters)
    message_track: Final = forwarded(AsyncAdmin.message_track)
    message_trace: Final = forwarded(AsyncAdmin.message_trace)

    # Transactions

    resume_check: Final = forwarded(AsyncAdmin.resume_check)

    # Brokers

    cluster: Final = forwarded(AsyncAdmin.cluster)
    broker_runtime_info: Final = forwarded(AsyncAdmin.broker_runtime_info)
    broker_config: Final = forwarded(AsyncAdmin.broker_config)
    update_broker_config: Final = forwarded(AsyncAdmin.update_broker_config)
    broker_stats: Final = forwarded(AsyncAdmin.broker_stats)
    all_broker_stats: Final = forwarded(AsyncAdmin.all_broker_stats)
    broker_consume_stats: Final = forwarded(AsyncAdmin.broker_consume_stats)
    broker_topics: Final = forwarded(AsyncAdmin.broker_topics)
    broker_groups: Final = forwarded(AsyncAdmin.broker_groups)
    counter: Final = forwarded(AsyncAdmin.counter)
    ha_status: Final = forwarded(AsyncAdmin.ha_status)
    clean_expired_consume_queues: Final = forwarded(AsyncAdmin.clean_expired_consume_queues)
    clean_unused_topics: Final = forwarded(AsyncAdmin.clean_unused_topics)
    delete_expired_commit_log: Final = forwarded(AsyncAdmin.delete_expired_commit_log)
    wipe_write_perm: Final = forwarded(AsyncAdmin.wipe_write_perm)
    add_write_perm: Final = forwarded(AsyncAdmin.add_write_perm)

    # Name servers

    kv_configs: Final = forwarded(AsyncAdmin.kv_configs)
    kv_config: Final = forwarded(AsyncAdmin.kv_config)
    put_kv_config: Final = forwarded(AsyncAdmin.put_kv_config)
    delete_kv_config: Final = forwarded(AsyncAdmin.delete_kv_config)
    name_server_config: Final = forwarded(AsyncAdmin.name_server_config)
    update_name_server_config: Final = forwarded(AsyncAdmin.update_name_server_config)

    # Controllers

    controllers: Final = forwarded(AsyncAdmin.controllers)
    controller_metadata: Final = forwarded(AsyncAdmin.controller_metadata)
    in_sync_sets: Final = forwarded(AsyncAdmin.in_sync_sets)
    elect_master: Final = forwarded(AsyncAdmin.elect_master)
    clean_broker_data: Final = forwarded(AsyncAdmin.clean_broker_data)
    controller_config: Final = forwarded(AsyncAdmin.controller_config)
    update_controller_config: Final = forwarded(AsyncAdmin.update_controller_config)
    broker_epochs: Final = forwarded(AsyncAdmin.broker_epochs)
    set_epochs: Final = forwarded(AsyncAdmin.set_epochs)

    # Class filters

    put_filter_class: Final = forwarded(AsyncAdmin.put_filter_class)
    filter_classes: Final = forwarded(AsyncAdmin.filter_classes)
    remove_filter_class: Final = forwarded(AsyncAdmin.remove_filter_class)

    # Users and access control lists

    users: Final = forwarded(AsyncAdmin.users)
    user: Final = forwarded(AsyncAdmin.user)
    create_user: Final = forwarded(AsyncAdmin.create_user)
    update_user: Final = forwarded(AsyncAdmin.update_user)
    delete_user: Final = forwarded(AsyncAdmin.delete_user)
    acls: Final = forwarded(AsyncAdmin.acls)
    acl: Final = forwarded(AsyncAdmin.acl)
    set_acl: Final = forwarded(AsyncAdmin.set_acl)
    delete_acl: Final = forwarded(AsyncAdmin.delete_acl)
    copy_accounts: Final = forwarded(AsyncAdmin.copy_accounts)
