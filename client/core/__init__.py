"""The client's decisions, without I/O: names, routes, rebalancing, flow control, send attempts.

Pure: no event loop, no sockets, no clock, no randomness; the caller passes times and random numbers
as arguments.
"""
