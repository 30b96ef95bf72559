"""`trocket up`: a name server and brokers, in one process or in several."""
