"""Metrics and health of all servers: samples, Prometheus's text, the HTTP server."""
