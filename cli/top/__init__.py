"""`trocket top`: brokers, topics and groups, live."""
