"""The message store: commit log, consume queues, hash index, checkpoint and their services.

Only `store.ha` opens sockets. Java counterpart: the `store` module of RocketMQ 5.x.
"""
