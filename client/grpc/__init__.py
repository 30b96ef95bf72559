"""The client's requests in terms of gRPC: to it, a gRPC server is a broker and a name server.

Pure: the connection that has a `Translator` for its session sends and receives the bytes.
"""
