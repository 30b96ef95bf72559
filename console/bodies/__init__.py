"""Bodies of messages as a page shows them: text, JSON, MessagePack, hex, and a decoder's text."""
