"""The name server: which brokers live, and which topics they serve.

`NamesrvController` runs one; `RouteInfoManager` is its pure core. See docs/namesrv.md.
"""
