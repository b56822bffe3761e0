"""From what a user wrote to what runs: semantics, then a store pattern, then a physical plan. Pure.

``physical.plan_query`` is the way in.
"""
