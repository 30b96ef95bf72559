"""`trocket tls`: certificates."""
