"""What messaging features do, as data, and the programs that play them."""
