"""The process in which a contender runs: commands come in and answers go out as lines of JSON.

    {"do": "load", "logits": FILE, "labels": FILE}   read the inputs into memory, in the contender's own container
    {"do": "ask", "task": NAME}                      -> {"able": whether it can do this task}
    {"do": "run", "task": NAME}                      -> {"seconds": …, "value": …, "softmax": the seconds that it took of these}

An answer {"error": …} stands for anything that went wrong. Only numpy is needed here, besides what the adapter imports.
"""

import gc
import importlib
import inspect
import io
import json
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from typing import Any

import numpy as np


def answer(adapter: ModuleType, state: dict[str, Any], command: dict[str, str]) -> dict[str, Any]:
    """What came of one command; `state` holds the inputs between commands."""
    if command["do"] == "load":
        state["logits"] = np.load(command["logits"])
        state["inputs"] = adapter.native(state["logits"], np.load(command["labels"]))
        return {}
    if command["do"] == "ask":
        return {"able": hasattr(adapter, command["task"])}
    task, (logits, labels) = getattr(adapter, command["task"]), state["inputs"]
    gc.collect()
    state["logits"].sum()  # a system may have taken the pages away from whoever waited for its turn
    begin = between = time.perf_counter()
    if "probabilities" in inspect.signature(task).parameters:
        logits = adapter.softmax(logits)
        between = time.perf_counter()
    value = task(logits, labels)
    seconds, softmax = time.perf_counter() - begin, between - begin
    return {"seconds": seconds, "value": float(value), "softmax": softmax or None}


def serve(name: str, threads: int) -> None:
    """Answer commands until the input ends."""
    out, state, adapter = sys.stdout, {}, None
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        noise = io.StringIO()
        try:
            with redirect_stdout(noise), redirect_stderr(noise):
                if adapter is None:
                    adapter = importlib.import_module(f"benchmarks.adapters.{name}")
                    if "torch" in sys.modules:
                        sys.modules["torch"].set_num_threads(threads)
                reply = answer(adapter, state, json.loads(line))
        except Exception as fault:
            reply = {"error": f"{type(fault).__name__}: {fault}"}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
