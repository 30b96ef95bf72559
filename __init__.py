"""trocket: Apache RocketMQ's protocol and store files in Python, on trio."""

__version__ = "0.1.0"
