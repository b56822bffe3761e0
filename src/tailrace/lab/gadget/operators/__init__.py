"""The operators: one state machine each. Compiled by numba, see `driver.Operator` for the three methods."""
