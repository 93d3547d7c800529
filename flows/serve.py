"""Run the command: serve the current publication over HTTP on this machine, reloading each new one.

python -m flows.serve --dataset shop --port 8765
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("serve")
