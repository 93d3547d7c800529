"""Repeat consumption: the chance that a user takes an item of the history again, and a mixture with any model."""
