"""The commit log: its files, their age, and the one reader of its records."""
