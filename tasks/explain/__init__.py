"""What each model recommends to one user, how sure it is, and why.

`explanation` gathers it; `page` and `text` show it.
"""
