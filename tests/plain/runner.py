"""Runs cases in the interpreter that it is started with: ``python runner.py CASES.json RESULTS.json``.

Each job names a function of a ``cases_*`` module beside this file, and whether ascend-hotfix is armed. vLLM is imported once;
every job runs in a fork of that process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def run(job: dict[str, Any]) -> dict[str, Any]:
    """What the job's function returned, or what it raised, and the hits in the ledger."""
    if job["armed"]:  # the environment's own .pth line is switched off while vLLM is imported for all jobs
        from ascend_hotfix import gate

        os.environ.pop("ASCEND_HOTFIX_MODELS", None)
        os.environ.update(job.get("environ", {}))
        gate.arm()
    import lab

    result: dict[str, Any] = {}
    try:
        module = importlib.import_module(job["module"])
        with tempfile.TemporaryDirectory(prefix="plain-") as folder:
            result["value"] = getattr(module, job["function"])(lab.Lab(folder), **job.get("arguments", {}))
    except Exception as error:
        result["error"] = type(error).__name__
        result["message"] = str(error)
        result["traceback"] = traceback.format_exc()
    if job["armed"]:
        from ascend_hotfix.ledger import LEDGER

        result["hits"] = {f"{e.patch}.{e.fix}.{e.seam}": e.hits for e in LEDGER if e.hits}
        result["findings"] = list(LEDGER.findings)
    return result


def main(jobs_file: str, results_file: str) -> None:
    """Runs the jobs one after another."""
    sys.path.insert(0, str(HERE))
    import lab

    lab.start()
    results = {}
    for name, job in json.loads(Path(jobs_file).read_text()).items():
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            try:
                text = json.dumps(run(job))
            except BaseException as error:  # whatever it is, the parent must be told
                text = json.dumps(
                    {"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
                )
            with os.fdopen(writer, "w") as pipe:
                pipe.write(text)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        status = os.waitpid(child, 0)[1]
        results[name] = json.loads(text) if text else {"error": "Died", "message": f"the process ended with {status}"}
        Path(results_file).write_text(json.dumps(results))  # each time: what is there tells where a run has stopped


if __name__ == "__main__":
    main(*sys.argv[1:3])
