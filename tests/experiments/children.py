"""Processes that a test starts, and their deaths. They come from a server that has imported torch and computed nothing."""

import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch._dynamo", "safetensors.torch", "PIL.Image", "hypothesis"])


def start(target: Callable[..., object], *arguments: object) -> BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def exit_codes(group: Iterable[BaseProcess]) -> list[int | None]:
    """Of processes that have all come to their end."""
    processes = list(group)
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def survived(process: BaseProcess) -> bool:
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def die_at(fatal: int, folder: Path) -> None:
    """Let this process die at the `fatal`-th moment, from here on, at which it is about to flush any file, or to open, rename
    or remove one in `folder`.

    Death at a flush tears the file: half of what was written is gone, as after a power cut.
    """
    moments = itertools.count()
    flush = os.fsync

    def pass_moment(descriptor: int | None = None) -> None:
        if next(moments) == fatal:
            if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(str(folder)):
            pass_moment()

    def flush_unless_fatal(descriptor: int) -> None:
        pass_moment(descriptor)
        flush(descriptor)

    os.fsync = flush_unless_fatal
    sys.addaudithook(watch)
