"""What users hold: messages, options, results, errors, events."""
