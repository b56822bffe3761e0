"""What a run should have given, computed anew from its input topics with nothing of a system under test."""
