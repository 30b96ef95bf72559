"""The filter server: pulls from its broker for consumers, and hands on what their class lets pass.

It is started by its broker (`filterServerNums`) or by hand (`trocket filtersrv`). What decides is a
filter (`filters.py`): a function or an expression that the operator configured, or a class that a
consumer uploaded, which runs in a process of its own (`workers/`).
"""
