"""What is kept of runs: files with the original's columns, every single latency, and what each process used."""
