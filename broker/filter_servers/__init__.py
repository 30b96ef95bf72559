"""Filter servers: started, supervised and registered by the broker."""
