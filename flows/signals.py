"""SIGINT and SIGTERM handling: exit within seconds, with one message.

Python's own handling is not enough: if Prefect's server has ended too (one that Prefect started receives the signals
of the whole process group), Prefect retries its requests for minutes. So a thread watches for signals, and ends the
process itself if the normal way takes too long. That is safe at any moment: a run leaves the same state as after a
crash, from which the next run recovers. Kernels release Python's global lock, so that the thread can act meanwhile.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Generator
from types import FrameType
from typing import Any, NoReturn

from oneclass.flows import prefect_server
from oneclass.tasks import home_page
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.home import Home


class PrefectNoiseFilter(logging.Filter):
    """Shorten Prefect's messages about a failure: no traceback, and no text that the command prints at its end."""

    REPORTED_ELSEWHERE = (
        "Crash detected!",
        "in state Crashed(",
        "Encountered exception during execution",
        "Stopping temporary",
    )
    FAILED = "Finished in state Failed("

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record and return whether to show it."""
        record.exc_info = record.exc_text = None
        if record.getMessage().startswith(self.FAILED):
            record.msg, record.args = "Finished in state Failed", ()
        return not any(words in record.getMessage() for words in self.REPORTED_ELSEWHERE)


class ErrorReportFilter(logging.Filter):
    """Have a run's log show an error that its user can mend once, without traceback."""

    def __init__(self) -> None:
        super().__init__()
        # Weak, since an error's traceback holds the frames of the stage with their data.
        self._last_error: weakref.ref[BaseException] | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record and return whether to show it."""
        if record.getMessage().startswith(PrefectNoiseFilter.FAILED):
            record.msg, record.args = "Finished in state Failed", ()
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not hasattr(error, "exit_status"):
            return True
        is_first = self._last_error is None or self._last_error() is not error
        self._last_error = weakref.ref(error)
        record.msg, record.args = "Encountered exception during execution: %s", (error,)
        record.exc_info = record.exc_text = None
        return is_first


def report_errors_once() -> None:
    """Filter the logs of flow and task runs, which Prefect's pages show, by `ErrorReportFilter`."""
    one_for_both = ErrorReportFilter()
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(one_for_both)


def silence_tracebacks() -> None:
    """Hide Prefect's messages about a failure that the command reports itself; Prefect still records them."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(PrefectNoiseFilter())
    # Prefect's warning about unsent events would come after the command's last line.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


SHUTDOWN_SECONDS = 4.0  # for the normal way to exit
STATE_UPDATE_SECONDS = 3.0  # for recording the state of the run in the warehouse and in Prefect
_active_runs: list[tuple[Home, str]] = []
_received_signals: list[int] = []


class Terminated(BaseException):
    """SIGTERM was received."""


@contextlib.contextmanager
def register_run(home: Home, run_id: str) -> Generator[None]:
    """Register a run as active, so that its state is recorded if the process must exit at once."""
    _active_runs.append((home, run_id))
    try:
        yield
    finally:
        _active_runs.remove((home, run_id))
        # Whatever error the shutdown met, such as a server that is gone, the run was cancelled.
        if is_terminating():
            with contextlib.suppress(Exception):
                runs.end_run(home, run_id, "cancelled")
            home_page.record_outcome(home, run_id, "cancelled")


@contextlib.contextmanager
def handle_signals() -> Generator[None]:
    """Watch for SIGINT and SIGTERM. Call it in the main thread."""
    _received_signals.clear()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    threading.Thread(target=_watch_signals, args=(read_end,), daemon=True, name="signals").start()
    previous = (
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False),
        signal.signal(signal.SIGTERM, _raise_on_signal),
    )
    hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(previous[0])
        signal.signal(signal.SIGTERM, previous[1])
        os.close(write_end)  # ends the thread


def termination_message(number: int) -> str:
    """Return the message of a command that a signal ended."""
    return (
        f"Interrupted by {signal.Signals(number).name}; what was published before stays as it was. "
        "The same command goes on from here."
    )


def is_terminating() -> bool:
    """Whether a signal has been received since `handle_signals` began."""
    return bool(_received_signals)


def signal_of(error: BaseException) -> int | None:
    """Return the signal that caused an error, or None if none was received."""
    from prefect.exceptions import TerminationSignal

    if _received_signals:
        return _received_signals[0]
    if isinstance(error, Terminated | TerminationSignal):
        return signal.SIGTERM
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else None


def _ignore_unraisable(unraisable: Any) -> None:
    """Ignore a signal's error raised in a finalizer, where Python drops it; the watching thread ends the process."""
    if not is_terminating() and signal_of(unraisable.exc_value) is None:
        sys.__unraisablehook__(unraisable)


def _raise_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


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
    note = threading.Thread(target=_record_outcome, daemon=True)
    note.start()
    note.join(STATE_UPDATE_SECONDS)
    _stop_servers()
    print(f"\n{termination_message(number)}", file=sys.stderr, flush=True)
    os._exit(128 + number)


def _record_outcome() -> None:
    """Record the active runs as cancelled: in the warehouse, on the home page and in Prefect."""
    for home, run_id in _active_runs:
        from prefect.client.orchestration import get_client
        from prefect.states import Cancelled

        from oneclass.tasks.orchestration import reconcile

        with contextlib.suppress(Exception):
            runs.end_run(home, run_id, "cancelled")
        home_page.record_outcome(home, run_id, "cancelled")
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            ended = Cancelled(message="The process was told to end.")
            client.set_flow_run_state(reconcile.prefect_run_id(run_id), ended, force=True)


def _stop_servers() -> None:
    """Stop the run's temporary server and the servers that Prefect started, each a process of its own."""
    prefect_server.stop_server(seconds=0)
    if (module := sys.modules.get("prefect.server.api.server")) is None:
        return
    for server in list(module.SubprocessASGIServer._instances.values()):
        if server.server_process:
            server.server_process.kill()
