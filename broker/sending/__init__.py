"""Sends: messages, batches, messages sent back, and replies."""
