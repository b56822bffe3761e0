"""Connectors: one small class for each state store that a trace can be replayed on. See docs/explanation/gadget.md.

`contract` says what a connector is, `registry` which there are. A package that a store needs is imported when the store
is opened, so that the others work without it.
"""
