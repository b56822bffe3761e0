"""The five queries, and what the systems that run them share."""
