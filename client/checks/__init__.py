"""Checks of what programs give to the client, and errors that say what to write instead."""
