"""What runs inside a worker's process: protections first, then the filter.

`__main__.py` is started by its path, isolated (`python -I -S -E`), in an empty environment. Only
the standard library is imported, as little of it as can be: a worker is to start quickly. The
filter server itself imports `frames`, so that the protocol is declared once.
"""
