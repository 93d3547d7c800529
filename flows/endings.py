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

from flows import temporary_server
from tasks import overview
from tasks.stores import runs
from tasks.stores.home import Home

SECONDS = 4.0  # that the usual way gets
SECONDS_TO_NOTE = 3.0  # that the state of the run gets, in the warehouse and in Prefect
_at_work: list[tuple[Home, str]] = []
_told: list[int] = []  # the signals that have come


class Told(BaseException):
    """The process was told to end, by SIGTERM."""


@contextlib.contextmanager
def at_work(home: Home, run_id: str) -> Iterator[None]:
    """Note that a run is at work, so that its state is put right if the process must end at once."""
    _at_work.append((home, run_id))
    try:
        yield
    finally:
        _at_work.remove((home, run_id))
        if has_been_told():  # whatever error the way to the end has met: the server that is gone too, say
            with contextlib.suppress(Exception):
                runs.end(home, run_id, "cancelled")
            overview.after_run(home, run_id, "cancelled")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Watch for SIGINT and SIGTERM; in the main thread."""
    _told.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_watch, args=(reading,), daemon=True, name="signals").start()
    former = signal.set_wakeup_fd(writing, warn_on_full_buffer=False), signal.signal(signal.SIGTERM, _tell)
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(former[0])
        signal.signal(signal.SIGTERM, former[1])
        os.close(writing)  # which ends the thread


def words_of(number: int) -> str:
    """What a command says that was told to end."""
    return (
        f"Interrupted by {signal.Signals(number).name}; what was published before stays as it was. "
        "The same command goes on from here."
    )


def has_been_told() -> bool:
    """Whether a signal has come, since `watched` began."""
    return bool(_told)


def told_by(error: BaseException) -> int | None:
    """The signal that told the process to end, of which the error is then a consequence; None where none has come."""
    from prefect.exceptions import TerminationSignal

    if _told:
        return _told[0]
    if isinstance(error, Told | TerminationSignal):
        return signal.SIGTERM
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else None


def _unraisable(lost: Any) -> None:
    """Say nothing of a signal's error that came up in a finalizer, where Python drops it: the watch ends the process."""
    if not has_been_told() and told_by(lost.exc_value) is None:
        sys.__unraisablehook__(lost)


def _tell(number: int, frame: FrameType | None) -> NoReturn:
    raise Told


def _watch(reading: int) -> None:
    """Wait for a signal; end the process where it has not ended by itself a few seconds later."""
    with open(reading, "rb", buffering=0) as signals:
        while told := signals.read(1):
            if told[0] in (signal.SIGINT, signal.SIGTERM):
                _told.append(told[0])
                logging.disable(logging.CRITICAL)  # errors on the way to the end are not worth telling
                timer = threading.Timer(SECONDS, _end, told)
                timer.daemon = True
                timer.start()


def _end(number: int) -> NoReturn:
    note = threading.Thread(target=_note, daemon=True)
    note.start()
    note.join(SECONDS_TO_NOTE)
    _end_servers()
    print(f"\n{words_of(number)}", file=sys.stderr, flush=True)
    os._exit(128 + number)


def _note() -> None:
    """Put the state of the run right: in the warehouse, on the home's page, and in Prefect if its server is there."""
    for home, run_id in _at_work:
        from prefect.client.orchestration import get_client
        from prefect.states import Cancelled

        from tasks.orchestration import run_ids

        with contextlib.suppress(Exception):
            runs.end(home, run_id, "cancelled")
        overview.after_run(home, run_id, "cancelled")
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            ended = Cancelled(message="The process was told to end.")
            client.set_flow_run_state(run_ids.in_prefect(run_id), ended, force=True)


def _end_servers() -> None:
    """End the run's temporary server, and those that Prefect has started, in processes of their own."""
    temporary_server.end(seconds=0)
    if (module := sys.modules.get("prefect.server.api.server")) is None:
        return
    for server in list(module.SubprocessASGIServer._instances.values()):
        if server.server_process:
            server.server_process.kill()
