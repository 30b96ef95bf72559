"""What the client decides, without doing it: names, routes, rebalancing, flow, the bytes of a send.

Pure: no trio, no anyio, no socket, no clock, no randomness; the shell around it passes these in.
"""
