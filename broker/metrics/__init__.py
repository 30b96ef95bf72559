"""Metrics and health of a broker, served by HTTP; see docs/metrics.md."""
