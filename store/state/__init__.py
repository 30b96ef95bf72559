"""Tables that a server keeps in JSON files, and how far they are saved there."""
