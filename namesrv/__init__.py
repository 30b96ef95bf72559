"""The name server: the registry of brokers and of the topics that they serve.

`NamesrvController` runs one; `RouteInfoManager` is its pure core. See docs/namesrv.md.
"""
