"""Writing: puts, the commit of a burst, fsync, and callbacks that wait for it."""
