"""The broker's settings: its keys and limits, topic and group attributes, and its addresses."""
