"""The scenarios as a user of our client writes them, by each of its doors."""
