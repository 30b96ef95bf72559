"""The controller of sets of brokers that elect their masters."""
