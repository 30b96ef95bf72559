"""The keys of RocketMQ's sockets, common to all its servers, and what unsupported keys mean.

Read out of the setters and fresh instances of
NettyServerConfig and NettyClientConfig
of RocketMQ 5.5.0; keys that 4.x and 5.0 to 5.3 had besides are under `[gone]`. The sections say
what it means that trocket does not support a key (`EFFECTS` in common/known_keys.py); whether it
does, the dataclass says. Format: `parse_known_keys`.
"""

from __future__ import annotations

NETTY_KEYS = """\
[memory]
clientPooledByteBufAllocatorEnable bool false
serverPooledByteBufAllocatorEnable bool true
[netty]
channelNotActiveInterval long 60000
clientSocketRcvBufSize int 0
clientSocketSndBufSize int 0
connectTimeoutMillis int 3000
disableNettyWorkerGroup bool false
enableReconnectForGoAway bool true
enableShutdownGracefully bool false
maxReconnectIntervalTimeSeconds long 60
scanAvailableNameSrv bool true
serverChannelMaxIdleTimeSeconds int 120
serverNettyWorkerGroupEnable bool true
serverSocketBacklog int 1024
serverSocketRcvBufSize int 0
serverSocketSndBufSize int 0
shutdownWaitTimeSeconds int 30
socksProxyConfig str {}
useEpollNativeSelector bool false
useTLS bool false
writeBufferHighWaterMark int 0
writeBufferLowWaterMark int 0
[other]
bindAddress str 0.0.0.0
clientChannelMaxIdleTimeSeconds int 120
clientCloseSocketIfTimeout bool true
listenPort int 0
[threads]
clientAsyncSemaphoreValue int 65535
clientCallbackExecutorThreads int (cpus)
clientOnewaySemaphoreValue int 65535
clientWorkerThreads int 4
disableCallbackExecutor bool false
serverAsyncSemaphoreValue int 64
serverCallbackExecutorThreads int 0
serverOnewaySemaphoreValue int 256
serverSelectorThreads int 3
serverWorkerThreads int 8
"""

EFFECTS = {
    "batch": "how messages are laid out does not depend on it; compaction is not there yet",
    "cold": "flow control of cold data is not there",
    "delay": "delayed and timed messages come without it: they are kept in another way",
    "discovery": "name servers are those of namesrvAddr, and every registration is whole",
    "filters": "SQL filters do not depend on it; tag filters need no setting",
    "fixed": "RocketMQ does not read this key either: the path follows from storePathRootDir",
    "gone": "RocketMQ itself does not read this key any more",
    "lite": "lite topics and LMQ are not there yet",
    "memory": "files are written with pwrite and mapped to be read; there is nothing to tune here",
    "metrics": "metrics, statistics and traces are not there yet",
    "netty": "sockets are trio's, not Netty's; there is nothing to tune here",
    "other": "it is not there yet",
    "pop": "POP consumption is not there yet",
    "replication": "who is master is set by an operator: no controller, acting master or DLedger",
    "retention": "files are removed at once and minimum offsets follow: nothing to tune here",
    "rocksdb": "there is no RocksDB; consume queues and configuration are in RocketMQ's own files",
    "security": "users and access control are not there yet: whoever reaches the port is let in",
    "threads": "requests are served without thread pools and their queues",
    "tiered": "tiered storage is not there",
    "trocket": "it is trocket's own; RocketMQ does not know it",
    "transactions": "transactions are not there yet",
}
"""What it means that a key is not supported, by section of the tables of known keys."""
