"""Run the command: remove users from a home, and publish what the remaining events give.

python -m flows.forget --dataset shop --user C-42
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("forget")
