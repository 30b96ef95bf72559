"""The wire differ: the same requests to two clusters, and their answers compared field by field."""
