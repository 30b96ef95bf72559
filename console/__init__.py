"""The web console: pages of a cluster, or of the store of a stopped broker."""
