"""The filter server's configuration, and how its process receives it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trocket.common.config import ConfigError, parse_properties
from trocket.filtersrv.config import read_filtersrv_config

COMMAND = [sys.executable, "-m", "trocket.filtersrv"]
DEADLINE_S = 30


def read(text):
    return read_filtersrv_config(parse_properties(text), path="f.conf")


def test_keys_of_rocketmq_are_read():
    config, warnings = read(
        "connectWhichBroker=10.0.0.1:10911\nfilterServerIP=10.0.0.2\nzipCompressLevel=9\n"
        "compressMsgBodyOverHowmuch=100\nclientUploadFilterClassEnable=false\n"
        "filterClassRepertoryUrl=http://h/x\nfsServerWorkerThreads=3\nnamesrvAddr=h:9876\n"
    )
    assert config.connect_which_broker == "10.0.0.1:10911"
    assert config.address(1) == "10.0.0.2:1"
    assert (config.zip_compress_level, config.compress_msg_body_over_howmuch) == (9, 100)
    assert not config.client_upload_filter_class_enable
    assert len(warnings) == 2


def test_the_brokers_own_file_names_the_broker():
    config, _ = read("listenPort=10911\nbrokerName=b\nstorePathRootDir=/x\n")
    assert (config.connect_which_broker, config.listen_port) == ("127.0.0.1:10911", 0)


@pytest.mark.parametrize(
    "text", ["", "connectWhichBroker=nowhere", "noSuchKey=1", "filterStrikesMax=0"]
)
def test_what_cannot_be_right_is_refused(text):
    with pytest.raises(ConfigError, match=r"f\.conf"):
        read(text)


def test_by_default_no_group_may_upload():
    config, _ = read("connectWhichBroker=h:1")
    assert not config.may_upload("g")
    assert not config.java_filter_enable
    assert not config.python_filter_enable


@pytest.mark.slow
@pytest.mark.parametrize("text", [b"", b"connectWhichBroker=127.0.0.1:1\n"])
def test_a_pipe_that_ends_too_early_is_refused(text):
    ended = subprocess.run(
        [*COMMAND, "--config-from-stdin"], input=text, capture_output=True, timeout=DEADLINE_S
    )
    assert ended.returncode == 2
    assert b"standard input: ended without an empty line" in ended.stderr


@pytest.mark.slow
def test_it_ends_with_the_process_that_started_it():
    with subprocess.Popen(
        [*COMMAND, "--config-from-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"connectWhichBroker=127.0.0.1:1\nfilterServerIP=127.0.0.1\n\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"The Filter Server boot success, 127.0.0.1:")
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
