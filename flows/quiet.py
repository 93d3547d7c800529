"""What a terminal is shown of Prefect's log: its record has the rest."""

import logging


class Quiet(logging.Filter):
    """What Prefect says of a failure, without tracebacks and without the text that the command says at its end."""

    ELSEWHERE = ("Crash detected!", "in state Crashed(", "Encountered exception during execution", "Stopping temporary")
    FAILED = "Finished in state Failed("

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record; whether it is shown."""
        record.exc_info = record.exc_text = None
        if record.getMessage().startswith(self.FAILED):
            record.msg, record.args = "Finished in state Failed", ()
        return not any(words in record.getMessage() for words in self.ELSEWHERE)


def silence_tracebacks() -> None:
    """Keep out of the terminal what Prefect says of an end that the command tells of; Prefect's own record has it."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(Quiet())
    # Prefect's warning of events that it has not sent yet would come after the command's own last line.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)
