"""Settings of consumer groups."""

from __future__ import annotations

import json

from trocket.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)


def test_a_group_is_written_with_javas_defaults() -> None:
    assert json.loads(SubscriptionGroupConfig("g").to_body()) == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "g",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def test_a_group_of_4_9_takes_the_defaults_of_5() -> None:
    config = SubscriptionGroupConfig.from_body(b'{"groupName":"g","retryMaxTimes":5}')
    assert config == SubscriptionGroupConfig("g", retry_max_times=5)


def test_policies_have_javas_delays() -> None:
    exponential = ExponentialRetryPolicy()
    assert (exponential.initial, exponential.max, exponential.multiplier) == (5_000, 7_200_000, 2)
    delays = CustomizedRetryPolicy().next
    assert (len(delays), delays[0], delays[4], delays[-1]) == (18, 1_000, 60_000, 7_200_000)
    assert delays == sorted(delays)


def test_a_group_with_policy_and_subscriptions_comes_back_the_same() -> None:
    body = (
        b'{"groupName":"g","groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":'
        b'{"initial":1,"max":2,"multiplier":3}},"subscriptionDataSet":[{"topic":"t",'
        b'"expressionType":"TAG","expression":"*","version":4}]}'
    )
    config = SubscriptionGroupConfig.from_body(body)
    assert config.group_retry_policy.exponential_retry_policy == ExponentialRetryPolicy(1, 2, 3)
    written = json.loads(config.to_body())
    assert {name: written[name] for name in json.loads(body)} == json.loads(body)


def test_no_two_groups_share_their_mutable_defaults() -> None:
    one, other = SubscriptionGroupConfig("a"), SubscriptionGroupConfig("b")
    one.attributes["x"] = "y"
    one.group_retry_policy.customized_retry_policy = CustomizedRetryPolicy([1])
    assert other.attributes == {}
    assert other.group_retry_policy == GroupRetryPolicy()


def test_a_table_of_groups_holds_what_is_forbidden() -> None:
    wrapper = SubscriptionGroupWrapper.from_body(
        b'{"subscriptionGroupTable":{"g":{"groupName":"g"}},"forbiddenTable":{"g":{"t":1}}}'
    )
    assert wrapper.forbidden_table == {"g": {"t": 1}}
    assert SubscriptionGroupWrapper.from_body(wrapper.to_body()) == wrapper
