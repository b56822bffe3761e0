"""What a trace of state accesses tells: one metric a file, all in ``summary``.

Defined in docs/explanation/gadget-analysis.md.
"""
