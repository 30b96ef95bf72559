"""The gRPC service of RocketMQ's 5.x clients, on the loop and in the turns of a server.

It translates calls to requests of remoting and their answers back. It needs ngh2 or h2, and
protobuf: the package's extra `grpc`. Nothing else imports it before the first such client connects.

Java counterpart: the module proxy of RocketMQ 5.5.0, org.apache.rocketmq.proxy.grpc.v2.
"""
