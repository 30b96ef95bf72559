"""Controller mode: a broker whose role a controller decides, and which changes it while it runs."""
