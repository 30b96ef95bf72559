"""Looking at, exporting and repairing a store that no broker has open: ours or Apache's.

What stands behind `trocket store` (cli/store.py). Nothing here runs in a broker. Reading goes
through `ReadOnlyDisk`; only `repair` and `export` write, each to the path it was given.

Memory: a record at a time (at most `log_walk.RECORD_SIZE_MAX`), 16 MiB of queue units, the slot
table of one index file, a few hundred bytes for each queue, and `repair --skip` some 200 bytes for
each lost message; never the log's size.
"""
