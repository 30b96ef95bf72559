"""Disks (the system's, one in memory, overlays) and the data folder: its layout and its lock."""
