"""A shop that takes orders, ships them and reminds of bills, over RocketMQ."""
