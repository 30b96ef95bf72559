"""RocketMQ's gRPC protocol, apache.rocketmq.v2: messages, and calls over HTTP/2 without sockets.

Nothing here knows the broker, a clock or a socket; `broker/grpc` serves calls, in the broker's own
loop. Imported with the first gRPC connection: it needs the extra `grpc`.
"""
