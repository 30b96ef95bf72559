"""Options of producers and consumers, and their defaults, which are RocketMQ's."""
