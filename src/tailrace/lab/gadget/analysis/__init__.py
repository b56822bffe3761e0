"""What a trace of state accesses tells: one metric a file, all together in ``summary``. Definitions: docs/gadget.md."""
