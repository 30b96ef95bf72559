"""The interoperability harness: brokers of Apache and ours, compared by Apache's clients and tools.

`peers` starts a name server and a broker of one kind and version; `process` watches their processes
and `guard` ends them when the harness is killed. `clients/` has small programs in Java, Go, Python
and for the C++ client's wheel, compiled on first use into `cache`. The comparisons are `scenarios`
(features under faults, which `relay` injects), `wire_differ` (single requests), `store_differ`
(files), `mqadmin` and `oracle` (Apache's classes). Each provides `jobs`, `cases` runs them under
pytest, `report` shows their cells.

Layer: below cli, above everything else; it uses public interfaces only (commands, sockets, files).
The tests and the benchmarks use it. A running broker imports nothing from here.

Not covered: the Dashboard and the exporter.
"""
