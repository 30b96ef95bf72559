"""The store of a stopped broker, served to this process as a cluster that can only be read.

What stands behind `trocket console PATH`. The broker's own code opens the files and answers, so its
pages are those of the running broker; nothing of it runs that changes anything: the disk is
read-only below a copy in memory, no service is started, and requests that change something, or are
about clients, are refused.

Memory: 20 bytes for each message whose queue must be built again, as for a start; never the log.
"""
