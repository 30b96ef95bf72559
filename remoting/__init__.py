"""RocketMQ's remoting protocol: a pure core with a thin trio shell around it.

Knows nothing of stores, brokers or name servers; every other folder may import it.
"""
