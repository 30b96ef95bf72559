"""Scenarios: messaging features as data, and the programs that run them."""
