"""Search of messages: by queue, time, tag, SQL92, key and text, by id, and a live tail.

Nothing here waits without a limit, and no result is a part without saying so: each says how many
messages were scanned, which brokers failed, and how it goes on.
"""
