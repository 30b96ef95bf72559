"""The broker: stores messages in topics, keeps groups and offsets, serves clients and tools."""
