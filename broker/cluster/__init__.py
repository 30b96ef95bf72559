"""The broker in its cluster: its registration with the name servers, and their routes."""
