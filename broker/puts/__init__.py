"""Puts of a turn: messages are appended, and answered once the turn is written."""
