"""The `trocket` command: starts what the other folders hold. No protocol logic of its own."""
