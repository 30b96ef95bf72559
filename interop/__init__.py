"""Real Apache brokers and official Java clients as peers of ours, each a process of its own.

`maven` fetches the official jars and compiles our Java sources against them; `process` starts,
watches and ends processes that report by lines; `apache` and `trocket_peer` run a name server and
a broker behind one interface; `java_peer` drives official producers and consumers.

Layer: beside cli, above everything; uses only public things (commands, sockets, files). The tests
and the benchmarks use it. Nothing here is imported by a running broker.

Not done: Go and C++ clients, the Dashboard and the exporter.
"""
