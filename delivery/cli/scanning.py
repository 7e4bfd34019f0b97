"""What `hoot scan` does."""
