"""Business rules of lists: which items may be recommended, raised, pinned or banned, and how many per category."""
