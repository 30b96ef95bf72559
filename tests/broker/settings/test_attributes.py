"""Changes of attributes."""

from __future__ import annotations

import pytest

from trocket.broker.settings.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    alter_attributes,
    parse_attributes,
)
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode


def alter(current, changes, *, is_new=False, allowed=TOPIC_ATTRIBUTES):
    return alter_attributes(current, parse_attributes(changes), is_new=is_new, allowed=allowed)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        ("+a=1,-b,+c=2", {"+a": "1", "-b": "", "+c": "2"}),
        ("+a=1=2", {"+a": "1"}),
    ],
)
def test_changes_are_read_with_their_signs(text, changes):
    assert parse_attributes(text) == changes


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("a=1", "add/alter attribute format is wrong: a"),
        ("a", "delete attribute format is wrong: a"),
        ("+a=1,+a=2", "key duplication: +a"),
    ],
)
def test_changes_of_wrong_form_are_refused(text, remark):
    with pytest.raises(RequestRefused) as refused:
        parse_attributes(text)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, remark)


def test_a_new_topic_takes_even_what_cannot_be_changed_later():
    assert alter({}, "+queue.type=SimpleCQ", is_new=True) == {"queue.type": "SimpleCQ"}
    assert alter({}, "+queue.type=BatchCQ", is_new=True) == {"queue.type": "BatchCQ"}


def test_what_is_there_is_kept_changed_and_removed():
    current = {"message.type": "NORMAL", "reserve.time": "5"}
    assert alter(current, "+message.type=DELAY,-reserve.time") == {"message.type": "DELAY"}
    assert current == {"message.type": "NORMAL", "reserve.time": "5"}


@pytest.mark.parametrize(
    ("current", "changes", "is_new", "remark"),
    [
        ({}, "+nothing=1", True, "unsupported key: nothing"),
        ({}, "-message.type", True, ("only add attribute is supported while creating topic. "
         "key: message.type")),
        ({}, "-message.type", False, "attempt to delete a nonexistent key: message.type"),
        ({}, "+queue.type=SimpleCQ", False,
         "attempt to update an unchangeable attribute. key: queue.type"),
        ({"queue.type": "SimpleCQ"}, "-queue.type", False,
         "attempt to update an unchangeable attribute. key: queue.type"),
        ({}, "+message.type=ODD", True,
         ("value is not in set: [UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE, "
          "MIXED]")),
        ({}, "+message.type=LITE", True, "message.type=LITE is not supported by this broker"),
        ({}, "+cleanup.policy=COMPACTION", True,
         "cleanup.policy=COMPACTION is not supported by this broker"),
        ({}, "+reserve.time=x", True, 'For input string: "x"'),
        ({}, "+reserve.time=-2", True, "value is not in range(-1, 9223372036854775807)"),
        ({}, "+reserve.time=9999999999999999999", True,
         "value is not in range(-1, 9223372036854775807)"),
        ({}, "+message.type=FIFO,-message.type", False,
         "alter duplication key. key: message.type"),
        ({}, "x+message=FIFO", True, "kv string format wrong."),
        ({}, "+=1", True, "kv string format wrong."),
        ({}, "x+=1", True, "kv string format wrong."),
        ({}, "message-", False, "kv string format wrong."),
    ],
)  # fmt: skip
def test_a_change_that_is_not_allowed_is_refused(current, changes, is_new, remark):
    with pytest.raises(RequestRefused) as refused:
        alter(current, changes, is_new=is_new)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, remark)


@pytest.mark.parametrize("value", ["0", "100"])
def test_a_group_has_a_priority_factor(value):
    changes = f"+priority.factor={value}"
    assert alter({}, changes, allowed=GROUP_ATTRIBUTES) == {"priority.factor": value}


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ("+message.type=FIFO", "unsupported key: message.type"),
        ("+lite.bind.topic=T", "unsupported key: lite.bind.topic"),
        ("+priority.factor=101", "value is not in range(0, 100)"),
        ("+priority.factor=-1", "value is not in range(0, 100)"),
        ("+priority.factor=x", 'For input string: "x"'),
    ],
)
def test_another_attribute_of_a_group_is_refused(changes, remark):
    with pytest.raises(RequestRefused) as refused:
        alter({}, changes, is_new=True, allowed=GROUP_ATTRIBUTES)
    assert refused.value.remark == remark
