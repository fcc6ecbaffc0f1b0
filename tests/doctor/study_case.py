"""A case for the zygote: all faults of one checkpoint, its model class imported once and each step in a fork of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Forks:
    """Answers as the zygote's client does, by forking this process."""

    def call(
        self,
        function: str,
        *,
        timeout: float = 300.0,
        env: dict[str, str] | None = None,
        memory: int | None = None,
        **kwargs: Any,
    ) -> Any:
        from ascend_hotfix.sim import pool

        request = {
            "function": function,
            "kwargs": kwargs,
            "timeout": timeout,
            "env": dict(env or {}),
            "memory": memory,
        }
        answer = pool.run_forked(request)
        if answer["kind"] == "value":
            return answer["value"]
        if answer["kind"] == "error":
            raise pool.CaseError(*(answer[n] for n in ("type", "message", "frames", "traceback", "output")))
        raise pool.CaseCrash(f"{function}: {answer['kind']}")


def differing(forks: Any, right: dict[str, str], arguments: dict[str, Any], env: dict[str, str]) -> list[str]:
    """The parameters that hold other values than *right* after a load, or why it does not load."""
    try:
        got = forks.call("values_case:digests", env=env, **arguments)
    except Exception as error:
        return [f"does not load: {error}"[:200]]
    return [name for name in got if got[name] != right.get(name)]


def faults(clean: str, weights: str, versions: dict[str, str], work: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each of *work* (``root`` and, of a fault in names, ``renamed``): what was found, suggested, left, and which parameters differ."""
    from ascend_hotfix.doctor.dryrun import Split, finding_data
    from ascend_hotfix.doctor.findings import Severity
    from ascend_hotfix.doctor.suggest.trial import suggestion
    from ascend_hotfix.sim import lab

    lab.make_config(clean)  # imports the model class, for every fork
    forks: Any = Forks()
    right = forks.call("values_case:digests", model_dir=clean, weights_dir=weights, renamed={})
    answers = []
    for one in work:
        made = suggestion(forks, one["root"], Split(), versions, {})
        answer: dict[str, Any] = {
            "before": [finding_data(f) for f in made.before],
            "left": [finding_data(f) for f in made.left],
            "choices": [line for choice in made.choices for line in (choice.what, *choice.lines)],
            "written": made.writable,
            "proposed": made.text,
        }
        arguments = {"model_dir": one["root"], "weights_dir": weights, "renamed": one["renamed"] or {}}
        if answer["written"]:
            file = Path(one["root"]) / "suggested_patch.py"
            file.write_text(made.text)
            answer["wrong"] = differing(forks, right, arguments, {"ASCEND_HOTFIX_PATH": str(file)})
        elif one["renamed"] is not None and not any(f.severity > Severity.NOTE for f in made.before):
            answer["harmless"] = not differing(forks, right, arguments, {})
        answers.append(answer)
    return answers
