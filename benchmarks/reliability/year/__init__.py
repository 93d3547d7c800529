"""A shop's year: the log that it brings every night, and what goes wrong with it."""
