"""SIGINT and SIGTERM handling: exit within seconds, with one message.

Python's own handling is not enough: if Prefect's server has ended too, Prefect retries its requests for minutes. So a
thread watches for signals, and ends the process itself if the normal way takes too long. That is safe at any moment: a
run leaves the same state as after a crash, from which the next run recovers. Kernels release Python's global lock, so
that the thread can act meanwhile.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from types import FrameType
from typing import Any, NoReturn

from oneclass.flows import prefect_server
from oneclass.tasks import home_page
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.home import Home

SHUTDOWN_SECONDS = 4.0  # for the normal way to exit
STATE_UPDATE_SECONDS = 3.0  # for recording that the run was cancelled, if that way takes longer
FAILED = "Finished in state Failed("
REPORTED_ELSEWHERE = ("Crash detected!", "in state Crashed(", "Encountered exception during execution")
_active_runs: list[tuple[Home, str]] = []
_received_signals: list[int] = []


class Terminated(BaseException):
    """A signal ended the command; the message tells its user what is left."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Interrupted by {signal.Signals(number).name}; what was published before stays as it was. "
            "The same command goes on from here."
        )
        self.exit_status = 128 + number


def report_errors_once() -> None:
    """Show an error that its user can mend once, without traceback, in the logs of runs on Prefect's pages."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_shorten_error)


def _shorten_error(record: logging.LogRecord) -> bool:
    if record.getMessage().startswith(FAILED):
        record.msg, record.args = "Finished in state Failed", ()
    error = record.exc_info[1] if record.exc_info else None
    if error is None or not hasattr(error, "exit_status"):
        return True
    record.msg, record.args = "Encountered exception during execution: %s", (error,)
    record.exc_info = record.exc_text = None
    is_first = "is_logged" not in vars(error)
    vars(error)["is_logged"] = True
    return is_first


def silence_tracebacks() -> None:
    """Hide Prefect's messages about a failure that the command reports itself; Prefect still records them."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_hide_failure)
    # Prefect's warning about unsent events would come after the command's last line.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


def _hide_failure(record: logging.LogRecord) -> bool:
    record.exc_info = record.exc_text = None
    return not any(words in record.getMessage() for words in REPORTED_ELSEWHERE)


@contextlib.contextmanager
def register_run(home: Home, run_id: str) -> Generator[None]:
    """Record a run as cancelled that ends after a signal, whatever error the shutdown met."""
    _active_runs.append((home, run_id))
    try:
        yield
    finally:
        if is_terminating():
            _record_cancellations()
        _active_runs.remove((home, run_id))


def _record_cancellations() -> None:
    """Record the active runs as cancelled, in the warehouse and on the home page."""
    for home, run_id in _active_runs:
        with contextlib.suppress(Exception):
            runs.end_run(home, run_id, "cancelled")
        home_page.record_outcome(home, run_id, "cancelled")


@contextlib.contextmanager
def handle_signals() -> Generator[None]:
    """Watch for SIGINT and SIGTERM. Call it in the main thread.

    Raises:
        Terminated: instead of any error in the block after a signal.
    """
    _received_signals.clear()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    threading.Thread(target=_watch_signals, args=(read_end,), daemon=True, name="signals").start()
    previous_end = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise_on_signal}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    try:
        yield
    except BaseException as error:
        if number := _find_signal(error):
            raise Terminated(number) from error
        raise
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(previous_end)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(write_end)  # ends the thread


def is_terminating() -> bool:
    """Whether a signal has been received since `handle_signals` began."""
    return bool(_received_signals)


def _find_signal(error: BaseException | None) -> int | None:
    """Return the signal that caused an error, or None if none was received."""
    from prefect.exceptions import TerminationSignal

    if _received_signals:
        return _received_signals[0]
    if isinstance(error, Terminated | TerminationSignal):
        return signal.SIGTERM
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else None


def _ignore_unraisable(unraisable: Any) -> None:
    """Ignore a signal's error raised in a finalizer, where Python drops it; the watching thread ends the process."""
    if _find_signal(unraisable.exc_value) is None:
        sys.__unraisablehook__(unraisable)


def _raise_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(number)


def _watch_signals(read_end: int) -> None:
    """Wait for a signal, and end the process if it has not ended a few seconds later."""
    with open(read_end, "rb", buffering=0) as signals:
        while received := signals.read(1):
            if received[0] in (signal.SIGINT, signal.SIGTERM):
                _received_signals.append(received[0])
                logging.disable(logging.CRITICAL)  # errors during shutdown are noise
                timer = threading.Timer(SHUTDOWN_SECONDS, _force_exit, received)
                timer.daemon = True
                timer.start()


def _force_exit(number: int) -> NoReturn:
    note = threading.Thread(target=_record_cancellations, daemon=True)
    note.start()
    note.join(STATE_UPDATE_SECONDS)
    prefect_server.stop_server(seconds=0)
    ended = Terminated(number)
    print(f"\n{ended}", file=sys.stderr, flush=True)
    os._exit(ended.exit_status)
