"""Opening the store of a stopped broker: what is refused, in which words, and what is mended."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from tests.kit.stopped_stores import stamps
from trocket.blocking import Producer
from trocket.cli.app import run
from trocket.cli.stopped_store.files import read_conf_file
from trocket.cli.stopped_store.identity import Names, names_of
from trocket.cli.stopped_store.requests import OF_BROKER, OF_NAME_SERVER, plain_pull
from trocket.cli.stopped_store.serving import NAME_SERVER, StoppedStore, opened_store
from trocket.cli.stopped_store.shown import client_of
from trocket.client import Admin, Message
from trocket.console.pages.table import CHANGES, PAGES
from trocket.console.texts import LANGUAGES
from trocket.disk.errors import ForeignStateError, StoreLockedError
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.store.offline.layout import NoStoreError
from trocket.testing import Broker

from .running import Browser, logged_in, store_console

CONFIG = {
    "brokerName": "shop-1",
    "brokerClusterName": "shops",
    "enableConsumeQueueExt": True,
    "mappedFileSizeCommitLog": 65_536,
}
QUERIES = {
    "topic": {"topic": "orders"},
    "group": {"group": "billing"},
    "dead_letters": {"group": "billing"},
    "popped": {"group": "billing"},
    "messages": {"topic": "orders"},
    "search": {"q": "4"},
    "message": {"id": "7F00000101000000000000000000000A"},
}
COUNT = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with queues of both kinds, over several files; its broker was stopped."""
    folder = tmp_path_factory.mktemp("broker")
    with Broker(folder=folder, config=CONFIG) as broker:
        broker.create_topic("orders", queues=2)
        broker.create_topic("batches", queues=1, queue_type="BatchCQ")
        broker.create_group("billing")
        with Producer(broker.url, group="shop") as producer:
            for number in range(COUNT):
                body = b'{"id": %d}' % number + b" " * 4_000
                tag = "even" if number % 2 == 0 else "odd"
                properties = {"price": str(number)}
                message = Message(
                    "orders", body, tags=tag, keys=f"k{number}", properties=properties
                )
                producer.send(message)
            producer.send_batch([Message("batches", b"%d" % number) for number in range(3)])
    return folder / "store"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture(scope="module")
def browser(made: Path) -> Iterator[Browser]:
    with store_console(made) as (console, browser):
        yield logged_in(console, browser)


# What is shown


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_every_page_is_shown_or_says_that_it_needs_a_broker(
    browser: Browser, made: Path, page: object, language: str
) -> None:
    name, needs_broker = page.name, page.needs_broker  # type: ignore[attr-defined]
    browser.cookies["trocket_console_language"] = language
    shown = browser.get(name, **QUERIES.get(name, {}))
    del browser.cookies["trocket_console_language"]
    assert shown.status == (409 if needs_broker else 200), shown.text
    assert str(made) in shown.text
    if needs_broker:
        answer = browser.get(f"{name}.json", **QUERIES.get(name, {}))
        assert (answer.status, answer.tree["error"]) == (409, "needs_broker")
    if needs_broker and page.is_live:  # type: ignore[attr-defined]
        assert browser.get(f"{name}.events").status == 409


def test_pages_that_need_a_broker_are_not_in_the_navigation(browser: Browser) -> None:
    text = browser.get("overview").text
    assert '<a href="/groups"' in text
    for each in PAGES:
        if each.needs_broker:
            assert f'<a href="/{each.name}"' not in text


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.name)
def test_every_change_is_refused(browser: Browser, change: object) -> None:
    name = change.name  # type: ignore[attr-defined]
    for answer in (browser.get(name), browser.post(name)):
        assert answer.status == 403
        assert "Start the broker of" in answer.text


def test_messages_are_found_in_every_way(browser: Browser) -> None:
    def found(**query: object) -> list[str]:
        page = browser.tree("messages.json", topic="orders", **query)
        assert page["failures"] == []
        return [each["keys"][0] for each in page["messages"]]

    (row,) = browser.tree("messages.json", topic="orders", key="k7")["messages"]
    queue = f"{row['brokerName']}", str(row["queueId"])
    assert row["tags"] == "odd"
    assert set(found(tag="even")) <= {f"k{number}" for number in range(0, COUNT, 2)}
    assert found(sql="price > 37") == ["k39", "k38"]
    assert found(text='"id": 12}') == ["k12"]
    assert found(broker=queue[0], queue=queue[1], offset=row["queueOffset"], order="oldest")[0] == (
        "k7"
    )
    stored = str(row["storedMs"])
    assert "k7" in found(**{"from": stored, "to": stored})
    shown = browser.tree("message.json", id=row["messageId"])["life"]
    assert shown["message"]["queueOffset"] == row["queueOffset"]
    by_offset = browser.tree("message.json", id=shown["message"]["offsetMessageId"])["life"]
    assert by_offset["message"] == shown["message"]
    assert shown["verdict"]["key"] == "NO_GROUPS"


def test_queues_of_batches_are_shown(browser: Browser) -> None:
    (queue,) = browser.tree("topic.json", topic="batches")["queues"]
    assert (queue["begin"], queue["end"]) == (0, 3)
    assert browser.tree("messages.json", topic="batches")["messages"]


def test_names_and_address_are_those_of_the_broker(browser: Browser) -> None:
    (row,) = browser.tree("topic.json", topic="orders")["brokers"]
    assert (row["cluster"], row["brokerName"]) == ("shops", "shop-1")


def test_only_what_reads_is_answered() -> None:
    words = ("UPDATE", "DELETE", "SEND", "CREATE", "RESET", "POP", "ACK", "HEART", "REGISTER")
    for code in OF_BROKER | OF_NAME_SERVER:
        assert not any(word in code.name.split("_") for word in words), code
    assert RequestCode.GET_CONSUMER_RUNNING_INFO not in OF_BROKER


def test_every_other_request_is_refused_in_words(made: Path) -> None:
    async def ask(store: StoppedStore) -> dict[RequestCode, tuple[int, str]]:
        async with client_of(store) as client, Admin(client) as admin:
            (broker,) = (await admin.cluster()).brokers
            found = {}
            for address, answered in ((broker.address, OF_BROKER), (NAME_SERVER, OF_NAME_SERVER)):
                assert address is not None
                for code in set(RequestCode) - answered:
                    answer = await client.call(address, client.command(code))
                    found[code] = answer.code, answer.remark or ""
            return found

    with opened_store(str(made)) as store:
        answers = anyio.run(ask, store)
    assert len(answers) > 100
    for code, (answer, remark) in answers.items():
        assert answer == ResponseCode.SERVICE_NOT_AVAILABLE, code
        assert remark.endswith(f"start the broker for {code.name}")


def test_a_pull_neither_waits_nor_commits() -> None:
    served: list[str] = []

    def process(request: RemotingCommand, channel: object) -> RemotingCommand:
        served.append(request.ext_fields["sysFlag"])
        return request.answer()

    pull = RemotingCommand(RequestCode.PULL_MESSAGE, {"sysFlag": "7"})
    plain_pull(process)(pull, None)  # type: ignore[arg-type]
    assert served == ["4"]


def test_another_broker_cannot_be_reached(made: Path) -> None:
    with opened_store(str(made)) as store, pytest.raises(ConnectionRefusedError):
        anyio.run(store.dial, "127.0.0.1", 1)


def test_names_are_found_in_the_topics() -> None:
    one = {"perm": 7, "readQueueNums": 1}
    own = {"TBW102": one, "orders": {"perm": 6, "readQueueNums": 1}}
    topics = {**own, "c1_REPLY_TOPIC": {"perm": 6}, "c1": {**one, "readQueueNums": 16}, "b1": one}
    assert names_of(topics) == Names("c1", "b1")
    assert names_of({**own, "rmq_sys_REVIVE_LOG_c2": {"perm": 6}}).cluster == "c2"
    assert names_of({}) == names_of({"x": None, "y": {"perm": "7"}})


# What is refused


def refusal(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What the command says, which ends with status 1."""
    assert run(["console", "--port", "0", str(path), *more]) == 1
    return capsys.readouterr().err


def test_a_folder_that_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no such folder" in refusal(tmp_path / "none", capsys)


def test_flags_may_stand_before_and_behind_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "none")
    for line in (
        ["console", path, "--port", "0", "--read-only"],
        ["console", "--read-only", path, "--port", "0"],
        ["console", "--store", path],
        ["-n", "127.0.0.1:1", "console", path],
    ):
        assert run(line) == 1
        assert "there is no such folder" in capsys.readouterr().err


def test_the_store_of_a_slave_answers_alone(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=shop-1\nbrokerId=1\nbrokerRole=SLAVE\n")
    with store_console(store, conf) as (console, browser):
        page = logged_in(console, browser).tree("messages.json", topic="orders")
        assert page["messages"]
        shown = browser.tree("message.json", id=page["messages"][0]["messageId"])
        assert shown["life"]["message"]["retention"]["reservedHours"] == 72


def test_a_folder_without_a_store_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "not a store" in refusal(tmp_path, capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    assert "there is no such folder" in refusal(tmp_path / "file", capsys)


@pytest.mark.parametrize("part", ["lock", "topics.json", "consumequeue"])
def test_what_may_not_be_read_is_said(
    store: Path, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may read everything, so the system's refusal is made."""

    def refusing(call: Callable[..., object]) -> Callable[..., object]:
        def called(path: object, *args: object, **options: object) -> object:
            if str(path).endswith(f"/{part}"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return call(path, *args, **options)

        return called

    monkeypatch.setattr(os, "open", refusing(os.open))
    monkeypatch.setattr(os, "listdir", refusing(os.listdir))
    said = refusal(store, capsys)
    monkeypatch.undo()
    assert f"{part}: Permission denied (run this as a user that may read it)" in said


def test_rocksdb_is_refused_with_what_to_do(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    assert "are in RocksDB" in refusal(store, capsys)
    with pytest.raises(ForeignStateError), store_console(store):
        pass


def test_a_log_that_is_elsewhere_is_read_with_its_conf(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "log"
    (store / "commitlog").rename(elsewhere)
    assert "give -c broker.conf" in refusal(store, capsys)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={elsewhere},/data/second\n")
    assert "names several folders" in refusal(store, capsys, "-c", str(conf))
    conf.write_text(f"storePathCommitLog={elsewhere}\n")
    with store_console(store, conf) as (console, browser):
        assert logged_in(console, browser).tree("messages.json", topic="orders")["messages"]


def test_wrong_words_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["console", "--conf", "broker.conf"]) == 2
    assert "give its PATH" in capsys.readouterr().err
    assert run(["console", "passwrod", "ann"]) == 2


def test_a_conf_that_cannot_be_used_is_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    assert "cannot read" in refusal(store, capsys, "-c", str(conf))
    conf.write_text("brokerNmae=x\n")
    assert "brokerNmae" in refusal(store, capsys, "-c", str(conf))
    conf.write_text("mappedFileSizeCommitLog=many\n")
    with pytest.raises(NoStoreError, match="mappedFileSizeCommitLog"):
        read_conf_file(str(conf))


def test_a_broker_and_a_console_keep_each_other_out(store: Path) -> None:
    folder = store.parent
    with store_console(store), pytest.raises(StoreLockedError):
        Broker(folder=folder, config=CONFIG).start()
    with (
        Broker(folder=folder, config=CONFIG),
        pytest.raises(StoreLockedError),
        store_console(store),
    ):
        pass


def test_two_consoles_may_read_one_store(store: Path) -> None:
    with store_console(store) as (_, one), store_console(store) as (_, other):
        assert one.port != other.port


def test_a_broker_that_opens_the_store_meanwhile_is_said(store: Path) -> None:
    (store / "lock").unlink()
    with store_console(store) as (console, browser):
        logged_in(console, browser)
        assert browser.get("topic", topic="orders").status == 200
        (store / "lock").write_text("lock")  # as Apache's broker, which does not lock the folder
        answer = browser.get("topic", topic="orders")
        assert answer.status == 502
        assert "a broker has opened" in answer.text


# What is damaged


def log_end(store: Path) -> int:
    """The end of the log that the running broker wrote."""
    with store_console(store) as (console, browser):
        page = logged_in(console, browser).tree("messages.json", topic="batches")
        life = browser.tree("message.json", id=page["messages"][0]["messageId"])["life"]
        return int(life["message"]["logEnd"])


def test_a_torn_tail_and_queues_behind_the_log_are_mended_in_memory(store: Path) -> None:
    end = log_end(store)
    (store / "abort").touch()
    newest = sorted((store / "commitlog").iterdir())[-1]
    with newest.open("r+b") as file:
        file.seek(end - int(newest.name))
        file.write(b"\0\0\0\x80\xda\xa3\x20\xa7" + b"torn")
    shutil.rmtree(store / "consumequeue" / "orders")
    shutil.rmtree(store / "index")
    before = stamps(store)
    with store_console(store) as (console, browser):
        logged_in(console, browser)
        queues = browser.tree("topic.json", topic="orders")["queues"]
        assert sum(each["end"] for each in queues) == COUNT
        assert browser.tree("messages.json", topic="orders", key="k7")["messages"]
        overview = browser.get("overview").text
        assert "did not end by itself" in overview
        assert browser.tree("overview.json")["findings"]
    assert stamps(store) == before


def test_a_look_up_by_key_is_refused_until_the_index_is_complete(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def complete(index: object) -> None:
        """Leave the index behind."""

    monkeypatch.setattr("trocket.cli.stopped_store.memory_index.FIRST_S", 0.0)
    monkeypatch.setattr("trocket.store.index.index_service.SLICE_COUNT", 1)
    monkeypatch.setattr("trocket.cli.stopped_store.serving.complete", complete)
    (store / "abort").touch()
    shutil.rmtree(store / "index")
    with store_console(store) as (console, browser):
        answer = logged_in(console, browser).get("messages", topic="orders", key="k7")
        assert "the index is being completed" in answer.text
        assert browser.tree("messages.json", topic="orders", key="k7", scan="1")["messages"]


def test_a_log_file_that_was_cut_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(min((store / "commitlog").iterdir()), 1_000)
    assert "run `trocket store repair`" in refusal(store, capsys)


def test_a_hole_in_the_log_is_said_and_the_rest_is_shown(store: Path) -> None:
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    with min((store / "commitlog").iterdir()).open("r+b") as file:
        file.seek(20_000)
        file.write(b"?" * 10_000)
    before = stamps(store)
    with store_console(store) as (console, browser):
        logged_in(console, browser)
        assert browser.tree("messages.json", topic="orders")["messages"]
        findings = browser.tree("overview.json")["findings"]
        assert any(each["severity"] == "problem" for each in findings)
    assert stamps(store) == before


def test_tables_that_cannot_be_read_are_said(store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.write_bytes(b'{"topicConfigTable": {')
    before = stamps(store)
    with store_console(store) as (console, browser):
        logged_in(console, browser)
        assert browser.tree("topic.json", topic="orders")["queues"]
        assert any(
            "topics.json" in each["text"] for each in browser.tree("overview.json")["findings"]
        )
    assert stamps(store) == before


def test_a_queue_of_another_size_is_said(store: Path) -> None:
    for path in (store / "consumequeue" / "orders").rglob("0*"):
        if path.is_file():
            os.truncate(path, 30)
    with store_console(store) as (console, browser):
        logged_in(console, browser)
        queues = browser.tree("topic.json", topic="orders")["queues"]
        assert sum(each["end"] for each in queues) == COUNT


def test_offsets_are_read_from_their_file(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"orders@billing": {"0": 5, "1": 20}}}))
    (store / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    with store_console(store) as (console, browser):
        group = logged_in(console, browser).tree("group.json", group="billing")
    assert [each["committed"] for each in group["queues"]] == [5, 20]
    assert group["lag"] == COUNT - 25
    assert group["members"] == []
