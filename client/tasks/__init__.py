"""Tasks and time: anyio's task group, the tasks of a client, and its clock."""
