"""Values, JSON and processes, for all other rooms."""
