"""The scenario program of RocketMQ's gRPC client for Python."""
