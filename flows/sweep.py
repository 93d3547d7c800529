"""Run the command: refit models for the figures of the report that vary a setting.

python -m flows.sweep --dataset ml-1m --source ratings.csv --sweep paired_symbols_r
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("sweep")
