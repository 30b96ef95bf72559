"""Connected clients: producers and consumers, their groups, and their locks of queues."""
