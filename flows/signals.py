"""How a command ends that is told to: by Ctrl-C or SIGTERM, within seconds, with one message.

Python's own way is not enough: where Prefect's server has ended too (one that Prefect started gets the signals of the
whole process group), Prefect goes on asking it for minutes. So a thread watches for signals, and ends the process itself
where the usual way takes too long. That is safe at any moment: what a run leaves is the same as after a crash, from which
the next run recovers. Kernels leave Python's global lock free, so that the thread can act while one is at work.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from oneclass.flows import prefect_server
from oneclass.tasks import home_page
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.home import Home


class PrefectNoiseFilter(logging.Filter):
    """What Prefect says of a failure, without tracebacks and without the text that the command says at its end."""

    REPORTED_ELSEWHERE = (
        "Crash detected!",
        "in state Crashed(",
        "Encountered exception during execution",
        "Stopping temporary",
    )
    FAILED = "Finished in state Failed("

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record; whether it is shown."""
        record.exc_info = record.exc_text = None
        if record.getMessage().startswith(self.FAILED):
            record.msg, record.args = "Finished in state Failed", ()
        return not any(words in record.getMessage() for words in self.REPORTED_ELSEWHERE)


def silence_tracebacks() -> None:
    """Keep out of the terminal what Prefect says of an end that the command tells of; Prefect's own record has it."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(PrefectNoiseFilter())
    # Prefect's warning of events that it has not sent yet would come after the command's own last line.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


SHUTDOWN_SECONDS = 4.0  # that the usual way gets
STATE_UPDATE_SECONDS = 3.0  # that the state of the run gets, in the warehouse and in Prefect
_active_runs: list[tuple[Home, str]] = []
_received_signals: list[int] = []  # the signals that have come


class Terminated(BaseException):
    """The process was told to end, by SIGTERM."""


@contextlib.contextmanager
def register_run(home: Home, run_id: str) -> Iterator[None]:
    """Note that a run is at work, so that its state is put right if the process must end at once."""
    _active_runs.append((home, run_id))
    try:
        yield
    finally:
        _active_runs.remove((home, run_id))
        if is_terminating():  # whatever error the way to the end has met: the server that is gone too, say
            with contextlib.suppress(Exception):
                runs.end_run(home, run_id, "cancelled")
            home_page.record_outcome(home, run_id, "cancelled")


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Watch for SIGINT and SIGTERM; in the main thread."""
    _received_signals.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_watch_signals, args=(reading,), daemon=True, name="signals").start()
    former = signal.set_wakeup_fd(writing, warn_on_full_buffer=False), signal.signal(signal.SIGTERM, _raise_on_signal)
    hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(former[0])
        signal.signal(signal.SIGTERM, former[1])
        os.close(writing)  # which ends the thread


def termination_message(number: int) -> str:
    """What a command says that was told to end."""
    return (
        f"Interrupted by {signal.Signals(number).name}; what was published before stays as it was. "
        "The same command goes on from here."
    )


def is_terminating() -> bool:
    """Whether a signal has come, since `watched` began."""
    return bool(_received_signals)


def signal_of(error: BaseException) -> int | None:
    """The signal that told the process to end, of which the error is then a consequence; None where none has come."""
    from prefect.exceptions import TerminationSignal

    if _received_signals:
        return _received_signals[0]
    if isinstance(error, Terminated | TerminationSignal):
        return signal.SIGTERM
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else None


def _ignore_unraisable(lost: Any) -> None:
    """Say nothing of a signal's error that came up in a finalizer, where Python drops it: the watch ends the process."""
    if not is_terminating() and signal_of(lost.exc_value) is None:
        sys.__unraisablehook__(lost)


def _raise_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _watch_signals(reading: int) -> None:
    """Wait for a signal; end the process where it has not ended by itself a few seconds later."""
    with open(reading, "rb", buffering=0) as signals:
        while told := signals.read(1):
            if told[0] in (signal.SIGINT, signal.SIGTERM):
                _received_signals.append(told[0])
                logging.disable(logging.CRITICAL)  # errors on the way to the end are not worth telling
                timer = threading.Timer(SHUTDOWN_SECONDS, _force_exit, told)
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
    """Put the state of the run right: in the warehouse, on the home's page, and in Prefect if its server is there."""
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
    """End the run's temporary server, and those that Prefect has started, in processes of their own."""
    prefect_server.stop_server(seconds=0)
    if (module := sys.modules.get("prefect.server.api.server")) is None:
        return
    for server in list(module.SubprocessASGIServer._instances.values()):
        if server.server_process:
            server.server_process.kill()
