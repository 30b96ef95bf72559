"""The files: commit log, consume queues, hash index, checkpoint and what keeps them true.

Knows nothing of sockets. Java counterpart: the `store` module of RocketMQ 5.x.
"""
