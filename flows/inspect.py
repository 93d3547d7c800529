"""Run the command: show how logs would be read, before any run.

python -m flows.inspect --source log.csv
python -m flows.inspect --source log.csv --dataset mine --write
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("inspect")
