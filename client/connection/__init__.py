"""The client of a cluster: connections, routes, heartbeats, and those who take part in it."""
