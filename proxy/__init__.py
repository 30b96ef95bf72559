"""Proxy: serves RocketMQ's gRPC clients in front of the brokers of a cluster.

The service is that of the broker (`grpc_server/`). Here is what is behind it: routes and settings
from name servers and brokers, and a connection to each broker for each client.
"""
