"""Run the command: search a model's settings and write the best to a file for `--config`.

python -m flows.tune --dataset ml-1m --source ratings.csv --model wmf --trials 50
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("tune")
