"""The control port of `trocket up --test-clock`: time, faults and disk of a broker, by HTTP."""
