"""The push consumer: its pulls and pops, its handlers, and their results."""
