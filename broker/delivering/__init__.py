"""Delayed messages: by level, and by a timer to the second; their recall."""
