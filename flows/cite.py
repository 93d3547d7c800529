"""Run the command: write the folder that a paper cites a run by.

python -m flows.cite --dataset ml-1m
python -m flows.cite --dataset ml-1m --run 0f640e2b-61c9-4662-a55b-a21ab97a63ff --out paper/table
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("cite")
