"""Reading: messages by queue and offset, checked against the log."""
