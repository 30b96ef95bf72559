"""The harness that compares brokers: Apache's and ours, with Apache's clients and tools as judges.

`peers` makes a name server with a broker of a kind and version, whose processes `process` watches
and `guard` outlives; `clients/` has small programs of Java, Go, Python and C++'s wheel, compiled on
first use into `cache`. What is asked: `scenarios` (features under faults, which `relay` makes),
`wire_differ` (single requests), `store_differ` (files), `mqadmin`, `oracle` (Apache's classes).
Each gives `jobs`, `runner` plays them, `report` shows their cells.

Layer: below cli, above everything else; uses only public things (commands, sockets, files). The
tests and the benchmarks use it. Nothing here is imported by a running broker.

Not done: the Dashboard and the exporter.
"""
