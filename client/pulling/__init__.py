"""Pulls: the pull consumer, the queues assigned to a group's member, and their messages."""
