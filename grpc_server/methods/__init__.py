"""The methods of apache.rocketmq.v2.MessagingService."""
