"""Files: disks, the files that hold state, and their errors; below the store and all servers."""
