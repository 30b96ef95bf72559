"""Request processors of the broker: one class per concern, each with its table of request codes."""
