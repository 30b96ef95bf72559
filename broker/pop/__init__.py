"""Pop consumption: check points, their records, and what follows from them."""
