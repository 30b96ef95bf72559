"""Replication: the broker as a master of slaves, or as the slave of a master."""
