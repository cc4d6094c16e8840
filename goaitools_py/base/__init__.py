"""Values, JSON and processes: what every room uses."""
