"""The program of a worker process: it enables the protections, then runs the filter.

`__main__.py` is started by its path in isolated mode (`python -I -S -E`) with an empty environment.
It imports only a small part of the standard library, so that workers start quickly. The filter
server imports `frames` too, so that the protocol is declared once.
"""
