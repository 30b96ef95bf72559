"""Pulls: their checks, their answers, and the runs of them that the C extension serves."""
