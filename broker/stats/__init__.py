"""Statistics of a broker: counts of messages by topic and group, and their growth over time."""
