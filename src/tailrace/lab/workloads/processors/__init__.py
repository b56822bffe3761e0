"""Four ``StatefulProcessor`` programs as users write them, with rows and with pandas frames, for Spark and Tailrace."""
