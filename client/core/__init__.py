"""The client's decisions, without I/O: names, routes, rebalancing, flow, the tries of a send.

Pure: no trio, no anyio, no socket, no clock, no randomness; the shell around it passes these in.
"""
