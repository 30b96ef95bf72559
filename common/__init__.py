"""Common ground of clients and servers: everything that is neither the wire nor the store.

Configuration files, processes, supervision, names of topics, properties of messages, SQL92 filters.
Imports nothing else of trocket; every other folder may import it. RocketMQ calls this folder so.
"""
