"""Run the command: show the publications and decisions, or publish another model or an earlier publication.

python -m flows.promote --dataset ml-1m
python -m flows.promote --dataset ml-1m --model slim
python -m flows.promote --dataset ml-1m --rollback
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("promote")
