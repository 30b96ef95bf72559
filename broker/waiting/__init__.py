"""Waiting requests: pulls and pops that are held until messages arrive, and due work."""
