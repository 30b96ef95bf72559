"""The commit log: its files, their age, and a scanner of its records."""
