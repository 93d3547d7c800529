"""Business rules of lists: which items may be recommended, raised, pinned or banned, and how many per category.

`settings` declares them, `expressions` parses and checks their SQL, `selection` applies them to scores.
"""
