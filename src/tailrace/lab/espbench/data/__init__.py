"""What a run of ESPBench reads: business tables, production times and sensor files, made from a seed."""
