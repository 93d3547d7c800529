"""What Prefect's UI says of the flows, in Markdown, to someone who has never seen the project.

A paragraph or an item is one line, for the UI breaks lines where the text does.
"""

STAGES = """
1. **ingest** reads the logs: a file that was read before is skipped, a line that cannot be read is kept with the reason.
2. **binarize** decides what counts as a like, and who is active enough to stay.
3. **split** holds out users, and one like of every user, for the tests.
4. **diagnose** counts how many likes users and items have.
5. **tune** searches the settings of models that have none for this data set; on most nights there is nothing to do.
6. **train** fits each model on what is not held out.
7. **evaluate** ranks all items for the test users.
8. **publish** fits the best model on everything, and swaps the published tables if nothing speaks against it.

A contract closes each stage: where it is broken the run stops, and what was published before stays.
"""

LOOK = """
The artifacts of a run say what came of it:

- `summary`: what was read, found and published, and what changed since the run before
- `evaluation`: the models side by side, a table for each way of holding out
- `contracts`: what had to hold after each task, in words, and whether it did
- `promotion`: why the new model was published, or was not

The report, `<home>/<dataset>/report/index.html`, has all of it with figures, on one page.
"""

BACKFILL = f"""
From raw logs to published tables: from what users like to what else each of them may like.
{STAGES}{LOOK}"""

NIGHTLY = f"""
Retrains one data set on everything so far, the new files of `<home>/<dataset>/landing/` included, and publishes for each user what they may like.
{STAGES}
One night at a time works on a data set: a run that meets another, or comes after its work was done, ends as cancelled. A night with nothing new redoes nothing.
{LOOK}"""
