"""Run the command: test the notifications of a data set's runs.

python -m flows.notify --dataset ml-1m --config settings.toml --test
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("notify")
