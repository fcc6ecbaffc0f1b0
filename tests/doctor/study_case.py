"""A case for the zygote: all faults of one checkpoint, its model class imported once and each step in a fork of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Forks:
    """Answers as the zygote's client does, by forking this process."""

    def call(self, function: str, *, timeout: float = 300.0, env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        from ascend_hotfix.sim import pool

        request = {"function": function, "kwargs": kwargs, "timeout": timeout, "env": dict(env or {})}
        answer = pool._run_forked(request)
        if answer["kind"] == "value":
            return answer["value"]
        if answer["kind"] == "error":
            raise pool.CaseError(*(answer[n] for n in ("type", "message", "frames", "traceback", "output")))
        raise pool.CaseCrash(f"{function}: {answer['kind']}")


def faults(clean: str, weights: str, versions: dict[str, str], work: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each of *work* (``root`` and ``renamed``): what was found, suggested, left, and which parameters differ."""
    from ascend_hotfix.doctor.dryrun import Split, finding_data
    from ascend_hotfix.doctor.suggest import suggestion
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
            "choices": made.choices,
            "written": bool(made.text) and not made.choices and not made.worse,
            "proposed": made.text,
        }
        if answer["written"]:
            file = Path(one["root"]) / "suggested_patch.py"
            file.write_text(made.text)
            env = {"ASCEND_HOTFIX_PATH": str(file)}
            arguments = {"model_dir": one["root"], "weights_dir": weights, "renamed": one["renamed"]}
            try:
                got = forks.call("values_case:digests", env=env, **arguments)
                answer["wrong"] = [name for name in got if got[name] != right.get(name)]
            except Exception as error:
                answer["wrong"] = [f"does not load: {error}"[:200]]
        answers.append(answer)
    return answers
