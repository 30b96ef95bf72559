"""The traffic between clients and servers as frames and lines, and its recording and replay."""
