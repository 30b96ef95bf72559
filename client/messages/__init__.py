"""Messages as a program sees them, and the hooks that see each of them."""
