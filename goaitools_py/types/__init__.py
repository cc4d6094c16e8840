"""The values that users hold: messages, options, results, errors, events."""
