"""`trocket interop`: brokers compared with Apache's."""
