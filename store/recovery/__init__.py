"""Recovery: what a start finds on the disk, and what it makes of it."""
