"""Replication: a master's commit log, byte for byte, into the logs of its slaves (docs/ha.md)."""
