"""`trocket auth`: users, and what they may do."""
