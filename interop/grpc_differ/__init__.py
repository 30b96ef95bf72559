"""The gRPC differ: the same gRPC calls to our broker and to Apache's proxy, answers compared."""
