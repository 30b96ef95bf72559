"""Static topics: logic queues whose parts are on several brokers."""
