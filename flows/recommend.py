"""Run the command: recommend from the current publication, for a user or any history.

python -m flows.recommend --dataset shop --user C-42
python -m flows.recommend --dataset shop --item sku-1 sku-9 --n 5 --json
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("recommend")
