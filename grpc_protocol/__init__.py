"""RocketMQ's gRPC protocol, apache.rocketmq.v2: messages, and calls over HTTP/2 without sockets.

Nothing here knows the broker, a clock or a socket. It needs ngh2 or h2, and protobuf: the package's
extra `grpc`.
"""
