"""The broker: topics, groups and offsets, and what it answers to clients and tools."""
