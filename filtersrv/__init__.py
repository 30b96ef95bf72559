"""The filter server: consumers pull from it the messages that a filter class selects.

It pulls from its broker, which starts it (`filterServerNums`); it can also be started by
`trocket filtersrv`. A filter (`filters.py`) is a function or an expression that the operator
configured, or a class that a consumer uploaded, which runs in a separate process (`workers/`).
"""
