"""Run the command: the whole pipeline over named logs, or over the landing folder.

python -m flows.backfill --dataset ml-1m --source ratings.csv
python -m flows.backfill --dataset ml-100k --since 1998-01-01 --until 1998-03-31 --every 1w --dry-run
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("backfill")
