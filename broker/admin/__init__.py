"""Administrators' requests: topics, groups, clients, messages, statistics and settings."""
