"""Descriptions of operators: plain data that travels as JSON, one module for each kind."""
