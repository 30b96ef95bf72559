"""Filters of messages: subscriptions by tags and SQL92, and the bit maps computed for them."""
