"""The results of a run, and their reports."""
