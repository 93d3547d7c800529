"""Stage `split`: divide the edges into training edges, known histories of held-out users, and targets.

`stage` writes the roles and matrices of every protocol; `protocols` has what is specific to leave_one_out, next_events
and liang2018, `matrix` loads edges and adds ages and explicit negatives, `matrix_writer` stores the result.
"""
