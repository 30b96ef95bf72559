"""Producers: sends, batches, requests, transactions, and the trace of all messages."""
