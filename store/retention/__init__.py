"""Retention: which log files go when, and how much room the disk has."""
