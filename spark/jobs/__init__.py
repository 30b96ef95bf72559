"""Jobs for `spark-submit`: each is a `main(argv)` over functions that take and give tables.

`spark-submit` runs them as files, so they import trocket as a user's program does.
"""
