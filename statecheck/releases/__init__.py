"""Environments of released engines: each release, or checkout, has one of its own, which borrows what is heavy."""
