"""Consume queues: their files, their units, and which queues and topics there are."""
