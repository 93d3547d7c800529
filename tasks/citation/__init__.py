"""The folder that a paper cites a run by: its table, how it was made, and the command that makes it again."""
