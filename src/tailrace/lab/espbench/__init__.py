"""ESPBench, the benchmark of enterprise streams: sensors and production over Kafka, business data in PostgreSQL."""
