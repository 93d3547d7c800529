"""Stage `binarize`: turn events into the edges of the observed graph G, with dense user and item indices."""
