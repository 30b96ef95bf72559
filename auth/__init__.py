"""Accounts: who may do what, as one core for the broker and the name server.

`Accounts` is the table of users and their rules, `AccessControl` checks requests by it, and
`guarded` puts the check before a server's processors. See docs/architecture.md.
"""
