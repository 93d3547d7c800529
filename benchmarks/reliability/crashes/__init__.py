"""Kill runs at each of their moments or again and again, and recover their homes."""
