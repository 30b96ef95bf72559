"""What a run of the harness found, and the ways it is shown."""
