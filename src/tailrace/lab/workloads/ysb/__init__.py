"""The Yahoo Streaming Benchmark: views of ads counted by campaign, whose ads are looked up in a Redis server.

In the form in which keyed prefetching is measured: many ads, asked for by a Zipf law, far more than a cache holds.
"""
