"""Run the command: show a user's history, the published recommendations with reasons, and each model's list.

python -m flows.explain --dataset ml-1m --user 42 --titles movies.csv
python -m flows.explain --dataset ml-1m --user 42 --item 1193
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("explain")
