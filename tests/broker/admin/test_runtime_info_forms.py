"""The texts of GET_BROKER_RUNTIME_INFO (28), read as the exporter and the Dashboard read them.

A text that is missing or has another form costs the exporter all of its 63 brokeruntime metrics:
it reads one table at a time, and stops at the first exception. The Dashboard's task of each
minute ends in the same way where `getTotalTps` is not three decimals.

Source: BrokerRuntimeStats.java of rocketmq-exporter 0.0.3, DashboardCollectTask.java of
rocketmq-dashboard 2.1.0.
"""

from __future__ import annotations

import re

import pytest
import trio

from trocket.remoting.bodies import KVTable

from ...kit import broker_client, pull_fields, send_fields

SEND, PULL, RUNTIME = 310, 11, 28

LONG = re.compile(r"-?\d{1,19}")
INTEGER = re.compile(r"-?\d{1,10}")
DOUBLE = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
"""What Double.parseDouble accepts; an exponent may have a small e and zeros."""
RATES = re.compile(rf"({DOUBLE.pattern} ){{2}}{DOUBLE.pattern} ?")
"""Of 10, 60 and 600 seconds; a BigDecimal accepts each."""
CAPACITY = re.compile(r"Total : [\d.]+ ([KMGTPE]iB|B), Free : [\d.]+ ([KMGTPE]iB|B)\.")
BYTES = re.compile(r"[\d.]+ ([KMGTPE]iB|B)")
DISTRIBUTION = re.compile(
    r"\[<=0ms\]:\d+ \[0~10ms\]:\d+ \[10~50ms\]:\d+ \[50~100ms\]:\d+ \[100~200ms\]:\d+"
    r" \[200~500ms\]:\d+ \[500ms~1s\]:\d+ \[1~2s\]:\d+ \[2~3s\]:\d+ \[3~4s\]:\d+"
    r" \[4~5s\]:\d+ \[5~10s\]:\d+ \[10s~\]:\d+ "
)
TEXT = re.compile(r".+")

FORMS = {
    LONG: (
        "bootTimestamp commitLogMaxOffset commitLogMinOffset dispatchBehindBytes dispatchMaxBuffer"
        " earliestMessageTimeStamp getMessageEntireTimeMax msgGetTotalTodayMorning"
        " msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning"
        " msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills"
        " pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize"
        " putMessageEntireTimeMax putMessageSizeTotal putMessageTimesTotal"
        " queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills"
        " queryThreadPoolQueueSize remainTransientStoreBufferNumbs sendThreadPoolQueueCapacity"
        " sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize"
        " startAcceptSendRequestTimeStamp"
    ),
    INTEGER: "brokerVersion",
    DOUBLE: (
        "commitLogDiskRatio consumeQueueDiskRatio putMessageAverageSize putLatency99 putLatency999"
    ),
    RATES: "getFoundTps getMissTps getTotalTps getTransferedTps getTransferredTps putTps",
    CAPACITY: "commitLogDirCapacity",
    BYTES: "remainHowManyDataToFlush",
    DISTRIBUTION: "putMessageDistributeTime",
    TEXT: "brokerVersionDesc runtime",
}
"""Keys by the form of their texts."""


@pytest.mark.parametrize("is_used", [False, True], ids=["new broker", "with messages"])
async def test_every_text_has_the_form_that_the_exporter_reads(autojump_clock, is_used):
    async with broker_client() as client:
        if is_used:
            assert (await client.ask(SEND, send_fields(), b"body")).code == 0
            delayed = send_fields(i="DELAY\x011\x02")
            assert (await client.ask(SEND, delayed, b"body")).code == 0
            assert (await client.ask(PULL, pull_fields(sysFlag=4))).code == 0
            await trio.sleep(60.1)
        table = KVTable.from_body((await client.ask(RUNTIME, {})).body).table
        wrong = {
            key: table.get(key)
            for form, keys in FORMS.items()
            for key in keys.split()
            if key not in table or not form.fullmatch(table[key])
        }
        assert wrong == {}
        progress = {
            key: text for key, text in table.items() if key.startswith("scheduleMessageOffset")
        }
        assert all(re.fullmatch(r"\d+,\d+", text) for text in progress.values())
        assert progress == ({"scheduleMessageOffset_1": "1,1"} if is_used else {})
