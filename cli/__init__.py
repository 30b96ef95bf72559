"""The `trocket` command: a shell over the other packages, without protocol logic."""
