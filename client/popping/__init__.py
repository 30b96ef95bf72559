"""Pops: the simple consumer, and what all consumers that pop have in common."""
