"""What a trace of state accesses is like: one metric a file, all in ``summary``.

Defined in docs/explanation/gadget-analysis.md.
"""
