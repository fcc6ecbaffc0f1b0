"""The report: text, JSON after its documented schema, exit codes, and the command line around it."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from writer import Spec, genuine, genuine_names, tiny

from ascend_hotfix import __version__, cli
from ascend_hotfix.doctor import run
from ascend_hotfix.doctor.findings import Finding, Severity, pattern
from ascend_hotfix.doctor.rehearse import _short
from ascend_hotfix.doctor.report import CouldNotRun, Options, ProgressBar, Report, Stage, to_json, to_text
from ascend_hotfix.doctor.split import Split
from ascend_hotfix.doctor.suggest import trial
from ascend_hotfix.doctor.suggest.writer import patch_text
from ascend_hotfix.doctor.texts import TEXTS, Phrase, Text
from ascend_hotfix.names import Prefix

ROOT = Path(__file__).parent.parent.parent
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
KEYWORDS = {
    "$schema",
    "title",
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "enum",
    "minimum",
} | {
    "maxItems",
    "pattern",
}


def schema() -> dict[str, Any]:
    """The JSON Schema in the documentation."""
    text = (ROOT / "docs/doctor-json.md").read_text(encoding="utf-8")
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def problems(value: Any, rules: dict[str, Any], at: str = "$") -> list[str]:
    """Where *value* breaks *rules*: as much of JSON Schema as the document uses, and an error for any more."""
    assert set(rules) <= KEYWORDS, set(rules) - KEYWORDS
    kinds = rules.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any((value is None) if k == "null" else _is(value, k) for k in kinds):
        return [f"{at} is no {kinds}: {value!r}"]
    found = [f"{at} is none of {rules['enum']}"] if "enum" in rules and value not in rules["enum"] else []
    if isinstance(value, (int, float)) and value < rules.get("minimum", value):
        found.append(f"{at} is below {rules['minimum']}")
    if isinstance(value, str) and not re.search(rules.get("pattern", ""), value):
        found.append(f"{at} does not match {rules['pattern']}")
    if isinstance(value, list):
        found += [f"{at} is too long"] if len(value) > rules.get("maxItems", len(value)) else []
        found += [p for n, item in enumerate(value) for p in problems(item, rules.get("items", {}), f"{at}[{n}]")]
    if isinstance(value, dict):
        properties, more = rules.get("properties", {}), rules.get("additionalProperties", True)
        found += [f"{at} lacks {key}" for key in rules.get("required", []) if key not in value]
        for key, item in value.items():
            if key in properties:
                found += problems(item, properties[key], f"{at}.{key}")
            elif more is False:
                found.append(f"{at} has the undocumented {key}")
            elif isinstance(more, dict):
                found += problems(item, more, f"{at}.{key}")
    return found


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])  # type: ignore[arg-type]


def faulty() -> Spec:
    spec = tiny()
    spec.drop("model.layers.1.self_attn.o_proj.deq_scale")
    spec.drop("model.layers.2.self_attn.o_proj.deq_scale")
    spec.indexes.clear()
    return spec


def report_of(spec: Spec, root: Path, **options: Any) -> Report:
    return run.diagnose(str(spec.write(root)), Options(static_only=True, **options), {})


@pytest.mark.parametrize("name", genuine_names())
def test_json_of_genuine_checkpoints_follows_the_documented_schema(name: str, tmp_path: Path) -> None:
    assert problems(to_json(report_of(genuine(name), tmp_path)), schema()) == []


@pytest.mark.parametrize("what", ["faulty", "no model directory", "suggested"])
def test_json_follows_the_documented_schema(what: str, tmp_path: Path) -> None:
    if what == "no model directory":
        report = run.diagnose(str(tmp_path / "nothing"), Options(), {})
        assert report.checkpoint is None
    else:
        report = report_of(faulty(), tmp_path, tensor_parallel_size=4, expert_parallel=True)
        report.suggested = "wrote it" if what == "suggested" else None
    assert problems(to_json(report), schema()) == []


def test_schema_check_sees_a_field_that_is_not_documented(tmp_path: Path) -> None:
    content = to_json(report_of(faulty(), tmp_path))
    content["findings"][0]["colour"] = "red"
    content["stages"][0].pop("reason")
    content["summary"]["faults"] = "one"
    assert len(problems(content, schema())) == 3


def test_right_faulty_and_unreadable_have_their_exit_codes(tmp_path: Path) -> None:
    assert report_of(tiny(), tmp_path / "right").exit_code == 0
    assert report_of(faulty(), tmp_path / "wrong").exit_code == 1
    assert run.diagnose(str(tmp_path / "nothing"), Options(), {}).exit_code == 2


def test_fault_outweighs_a_stage_that_could_not_run() -> None:
    failed = Stage("dry run", "failed", reason="no vllm")
    report = Report("p", Options(), stages=[failed])
    report.checkpoint = object()  # type: ignore[assignment]
    assert report.exit_code == 2
    report.findings.append(Finding("float-checkpoint"))
    assert report.exit_code == 1


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_text_keeps_to_the_width_and_never_breaks_a_name(width: int, tmp_path: Path) -> None:
    text = to_text(report_of(faulty(), tmp_path), width)
    name = "model.layers.1.self_attn.o_proj"
    assert name in text
    longest_word = max(len(word) for word in text.split())
    assert all(len(line) <= max(width, 10 + longest_word) for line in text.splitlines())
    assert "\x1b" not in text


def test_text_has_message_examples_consequence_remedy_and_code(tmp_path: Path) -> None:
    text = to_text(report_of(faulty(), tmp_path), 200)
    assert "2 layers of scheme W8A8 lack deq_scale" in text
    assert "model.layers.1.self_attn.o_proj\n" in text and "model.layers.2.self_attn.o_proj\n" in text
    assert "the answers are wrong" in text and "quantize again" in text
    assert "companion-absent, static" in text
    assert text.splitlines()[-1].startswith("1 fault, 0 warnings, 0 notes")


def test_command_that_is_checked_for(tmp_path: Path) -> None:
    """Quantized weights served without the flag are the most common report (vllm-ascend#986, #856, #8476)."""
    report = report_of(tiny(), tmp_path, tensor_parallel_size=4, expert_parallel=True)
    command = f"vllm serve {tmp_path} --quantization ascend --tensor-parallel-size 4 --enable-expert-parallel"
    assert to_json(report)["command"] == command and command in to_text(report, 300)


def test_overview_table_lists_findings_worst_first(tmp_path: Path) -> None:
    spec = genuine("minimax_m2-w8a8")
    spec.drop(next(n for n in spec.main if n.endswith("q_proj.weight_scale")))
    lines = to_text(report_of(spec, tmp_path), 120).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("severity"))
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["fault", "note"]
    assert lines[start + 1].split()[2] == "companion-absent"


@pytest.mark.parametrize("width", [50, 80, 120])
def test_chinese_report_keeps_to_the_width_in_columns(width: int, tmp_path: Path) -> None:
    text = to_text(report_of(faulty(), tmp_path), width, language="zh")
    assert "2 个 W8A8 层缺少 deq_scale" in text.replace("\n          ", "") and "错误" in text
    for line in text.splitlines():
        columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        assert columns <= width + 2 or len(line.split()) <= 2 or str(tmp_path) in line


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        (Stage("dry run", "done", 2.0), "这份权重可以正确加载"),
        (Stage("dry run", "failed", reason=Phrase("not installed", missing="vllm")), "检查未能全部完成"),
    ],
)
def test_in_a_chinese_report_nothing_but_names_is_english(stage: Stage, verdict: str, tmp_path: Path) -> None:
    report = run.diagnose(str(genuine("qwen3-w8a8").write(tmp_path)), Options(), {"vllm-ascend": "0.18.0"})
    report.stages[-1] = stage
    report.suggested = Phrase("not written", file="FILE", stage=Phrase("dry run"), why=Phrase("skipped", reason="--x"))
    text = to_text(report, 100, language="zh").replace(str(tmp_path), "")
    assert f"0 个错误，0 个警告，0 个提示：{verdict}" in text and "没有写入 FILE；试加载跳过：--x" in text
    left = set(re.findall(r"(?<![-\w])[A-Za-z][a-z]+(?![\w.-])", text))
    assert left <= {"vllm", "serve", "quantization", "ascend", "safetensors"}, left
    assert to_json(report)["suggested"] == "FILE is not written; dry run skipped: --x"


def test_language_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", str(tmp_path / "nothing"), "--language", "zh"])
    assert "不是目录" in capsys.readouterr().out


def test_colour_only_where_asked(tmp_path: Path) -> None:
    report = report_of(faulty(), tmp_path)
    assert re.sub(r"\x1b\[[0-9;]*m", "", to_text(report, 100, colour=True)) == to_text(report, 100)
    assert "\x1b[31;1mfault" in to_text(report, 100, colour=True)


def test_remedy_is_ready_to_paste(tmp_path: Path) -> None:
    root = tmp_path / "a model's folder"
    spec = tiny("FLOAT", "FLOAT")
    spec.description = None
    report = report_of(spec, root)
    remedy = to_json(report)["findings"][0]["remedy"]
    assert "DIR" not in remedy and f"vllm serve '{tmp_path}/a model'\"'\"'s folder'" in remedy


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_only_on_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgressBar, "WAIT", -1.0)
    monkeypatch.setattr(ProgressBar, "EVERY", 0.0)
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        bar = ProgressBar(stream)
        bar(1, 4, "first.safetensors")
        bar(3, 4, "third.safetensors")
        bar.close()
    assert plain.getvalue() == ""
    drawn = terminal.getvalue()
    assert "3/4 third.safetensors" in drawn and "###" in drawn
    assert drawn.endswith("\r\x1b[K")


# -- the dry run as a stage -------------------------------------------------------------------------------------------

BOTH = {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"}


def _dry(monkeypatch: pytest.MonkeyPatch, result: object) -> list[str]:
    """Put a dry run in place that returns or raises *result*; the list tells whether it ran."""
    ran: list[str] = []

    class Module:
        @staticmethod
        def run(report: Report, **_: Any) -> list[Finding]:
            ran.append(report.path)
            if isinstance(result, Exception):
                raise result
            return result  # type: ignore[return-value]

    monkeypatch.setitem(sys.modules, run.DRY_RUN, Module)
    return ran


def test_dry_run_findings_join_the_static_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _dry(monkeypatch, [Finding("file-truncated", "x", params={"found": "1", "expected": "2"}, stage="dry-run")])
    report = run.diagnose(str(faulty().write(tmp_path)), Options(), BOTH)
    assert [f.stage for f in report.findings] == ["static", "dry-run"]
    assert [(s.name, s.status) for s in report.stages] == [("static", "done"), ("dry run", "done")]
    assert problems(to_json(report), schema()) == []


def test_dry_run_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _dry(monkeypatch, CouldNotRun("no compiler"))
    report = run.diagnose(str(tiny().write(tmp_path)), Options(), BOTH)
    assert (report.stages[1].status, report.stages[1].reason, report.exit_code) == ("failed", "no compiler", 2)


def _no_vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return {}


def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    _dry(monkeypatch, CouldNotRun("no compiler"))
    return BOTH


@pytest.mark.parametrize(
    ("stop", "reason"), [(_no_vllm, "vllm and vllm-ascend not installed"), (_no_compiler, "no compiler")]
)
def test_patch_that_no_dry_run_could_write_is_told(
    stop: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "p.py"
    report = run.diagnose(str(tiny().write(tmp_path / "model")), Options(), stop(monkeypatch), suggest=target)
    assert report.suggested is not None and f"{target} is not written" in report.suggested
    assert reason in report.suggested and reason in to_text(report, width=200)


def test_patch_for_what_is_no_model_directory_is_told(tmp_path: Path) -> None:
    report = run.diagnose(str(tmp_path), Options(), BOTH, suggest=tmp_path / "p.py")
    assert report.suggested == f"{tmp_path / 'p.py'} is not written; static failed: no model directory"


def test_patch_is_not_told_of_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _dry(monkeypatch, [Finding("suggest-nothing", "p.py", stage="dry-run")])
    report = run.diagnose(str(tiny().write(tmp_path)), Options(), BOTH, suggest=tmp_path / "p.py")
    assert report.suggested is None


@pytest.mark.parametrize(("counts", "left"), [((1, 1), 0), ((2, 1), 2)])
@pytest.mark.parametrize("leaf", ["e_score_correction_bias", "bias"])
def test_cause_that_both_stages_see_is_told_once(
    leaf: str, counts: tuple[int, int], left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the dry run counts more of it, or means another parameter."""
    monkeypatch.setitem(TEXTS, "parameter-filled", Text("warning", "{count} {leaf}", "", ""))
    dry = [Finding("parameter-filled", p, c, params={"leaf": leaf}) for p, c in zip(("target", "draft"), counts)]
    _dry(monkeypatch, dry)
    report = run.diagnose(str(genuine("glm4_moe-w8a8").write(tmp_path)), Options(), BOTH)
    codes = [f.code for f in report.findings]
    assert codes.count("parameter-filled") == (left if leaf.startswith("e_") else 2)
    assert "router-bias-filled" in codes


O_PROJ = "model.layers.1.self_attn.o_proj"


def _seen(code: str, name: str, count: int = 1, **params: str) -> Finding:
    filled = {**dict.fromkeys(TEXTS[code].params, "x"), **params}
    return Finding(code, "", count, (name,), (pattern(name),), filled)


@pytest.mark.parametrize(
    ("static", "dry", "stays"),
    [
        (_seen("tensor-absent", f"{O_PROJ}.weight"), _seen("lookup-missing", O_PROJ), False),
        (_seen("weight-dtype", f"{O_PROJ}.weight"), _seen("dtype-cast", f"{O_PROJ}.weight"), False),
        (_seen("companion-dtype", O_PROJ, leaf="quant_bias"), _seen("dtype-cast", f"{O_PROJ}.quant_bias"), False),
        (_seen("companion-dtype", O_PROJ, leaf="quant_bias"), _seen("dtype-cast", f"{O_PROJ}.deq_scale"), True),
        (
            _seen("companion-shape", O_PROJ, leaf="deq_scale"),
            _seen("parameter-unwritten", f"{O_PROJ}.deq_scale", leaf="deq_scale"),
            False,
        ),
        (_seen("quantized-but-float", f"{O_PROJ}.weight"), _seen("float-into-quantized", f"{O_PROJ}.weight"), False),
        (_seen("quantized-but-float", f"{O_PROJ}.weight"), _seen("float-into-quantized", f"{O_PROJ}.weight", 2), True),
        (_seen("quantized-but-float", f"{O_PROJ}.weight"), _seen("quantized-into-float", f"{O_PROJ}.weight"), True),
        (_seen("router-bias-filled", "a.b", leaf="b"), _seen("parameter-unwritten", "a.b", leaf="b"), True),
        (_seen("scheme-not-in-release", "a", 2, scheme="W4A4"), _seen("scheme-unsupported", "b", scheme="W4A4"), False),
        (_seen("scheme-not-in-release", "a", 2, scheme="W4A4"), _seen("scheme-unsupported", "a", scheme="W8A8"), True),
        (_seen("layer-absent", "model.layers.1"), Finding("load-failed", params={"error": "x", "where": "x"}), True),
    ],
)
def test_dry_run_repeats_nothing_that_the_files_have_told(static: Finding, dry: Finding, stays: bool) -> None:
    assert run.without_echoes([static], [dry]) == ([dry] if stays else [])


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 99, None])
def test_dry_run_waits_for_weights_that_can_be_read(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny()
    spec.files["other.safetensors"] = {"lm_head.weight": spec.main.pop("lm_head.weight")}
    for weight_map in spec.weight_maps():
        weight_map["lm_head.weight"] = "other.safetensors"
    root = spec.write(tmp_path)
    (root / "other.safetensors").unlink() if content is None else (root / "other.safetensors").write_bytes(content)
    ran = _dry(monkeypatch, [])
    report = run.diagnose(str(root), Options(), BOTH)
    assert (ran, report.stages[1].status, report.exit_code) == ([], "skipped", 1)


def test_mistake_of_ours_in_the_dry_run_keeps_the_static_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _dry(monkeypatch, ZeroDivisionError("by zero"))
    root = str(faulty().write(tmp_path))
    report = run.diagnose(root, Options(), BOTH)
    assert "internal error: ZeroDivisionError: by zero" in report.stages[1].reason
    assert [f.code for f in report.findings] == ["companion-absent"] and report.exit_code == 1
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        run.diagnose(root, Options(), BOTH)


def test_dry_run_needs_vllm_and_vllm_ascend(tmp_path: Path) -> None:
    report = run.diagnose(str(tiny().write(tmp_path)), Options(), {"vllm": "0.30.0"})
    assert report.exit_code == 2 and "vllm-ascend not installed" in report.stages[1].reason


def test_dry_run_is_left_out_where_nothing_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = _dry(monkeypatch, [])
    spec = tiny("FLOAT", "FLOAT")
    spec.description = None
    report = run.diagnose(str(spec.write(tmp_path)), Options(), BOTH)
    assert ran == [] and report.stages[1].reason == "mend float-checkpoint first" and report.exit_code == 1


# -- command line -----------------------------------------------------------------------------------------------------


def test_doctor_prints_json_and_returns_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", str(faulty().write(tmp_path)), "--static-only", "--json", "-tp", "2"])
    content = json.loads(capsys.readouterr().out)
    assert code == content["exit_code"] == 1
    assert content["options"] == {"static_only": True, "tensor_parallel_size": 2, "expert_parallel": False}


def test_doctor_on_no_model_directory_is_one_clear_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "holds no config.json" in out and "Traceback" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["doctor"], "MODEL_DIR"),
        (["doctor", "x", "-tp", "0"], "at least 1"),
        (["doctor", "x", "--tensor-parallel-size", "two"], "at least 1"),
        (["docter", "x"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_wrong_command_line_is_code_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        cli.main(arguments)
    assert error.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["doctor", "x", "--static-only", "--suggest", "p.py"], "leave out --static-only"),
        (["doctor", "x", "--suggest", "no/such/folder/p.py"], "does not exist"),
        (["doctor", "x", "--suggest", "."], "name a file in it"),
    ],
)
def test_options_that_cannot_go_together(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_suggestion_is_written_over_no_file_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, began = tmp_path / "p.py", []
    monkeypatch.setattr(run, "diagnose", lambda path, *_, **__: began.append(path) or Report(path, Options()))
    target.write_text("# my own patch\n")
    assert cli.main(["doctor", "mine", "--suggest", str(target)]) == 2
    assert f"--suggest {target}: this file is there and was not written by the doctor" in capsys.readouterr().err
    for text in ("", patch_text({"lookup": (Prefix("a", "b"),)}, ["qwen3"], {}, 'odd """ name\n')):
        target.write_text(text)
        cli.main(["doctor", "again", "--suggest", str(target)])
    compile(target.read_text(), str(target), "exec")
    assert began == ["again", "again"]


@pytest.mark.parametrize("there", [True, False])
def test_suggestion_that_could_not_be_written_is_refused_before_any_work(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "p.py"
    if there:
        target.write_text("mine")
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    monkeypatch.setattr(run, "diagnose", lambda *_, **__: pytest.fail("the work has begun"))
    assert cli.main(["doctor", "x", "--suggest", str(target)]) == 2
    assert f"--suggest {target}: no permission to write" in capsys.readouterr().err
    assert asked == [(target if there else tmp_path, os.W_OK)]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        cli.main(["--version"])
    assert error.value.code == 0 and capsys.readouterr().out == f"ascend-hotfix {__version__}\n"


@pytest.mark.parametrize(("locale", "language"), [("zh_CN.UTF-8", "zh"), ("C.UTF-8", "en"), ("", "en")])
def test_the_language_is_that_of_the_locale(locale: str, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", locale)
    assert cli.build_parser().parse_args(["doctor", "x"]).language == language


def test_a_patch_that_cannot_be_used_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("PATCH = 1\n")
    monkeypatch.setenv("ASCEND_HOTFIX_PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_HOTFIX_MODELS", "all,kimi")
    folder = genuine("qwen3-w8a8").write(tmp_path / "checkpoint")
    report = run.diagnose(str(folder), Options(static_only=True), {})
    told = [f.message for f in report.findings if f.code == "patch-problem"]
    assert len(told) == 2 and "broken.py" in told[0] and "'kimi'" in told[1]


def test_each_mistake_of_a_patch_file_has_a_line_of_its_own() -> None:
    report = Report("a", Options())
    report.findings.append(
        Finding("patch-problem", "patches", params={"problem": "p.py:\n  line 2: one\n  line 3: two"})
    )
    shown = to_text(report, width=100).splitlines()
    first = next(number for number, line in enumerate(shown) if line.endswith("p.py:"))
    assert [line.strip() for line in shown[first + 1 : first + 3]] == ["line 2: one", "line 3: two"]


def test_control_characters_of_a_checkpoint_stay_out_of_the_terminal(tmp_path: Path) -> None:
    report = Report("a", Options())
    report.findings.append(Finding("tensor-absent", "x", examples=("bad\x1b[31m\nname" + "y" * 5000,)))
    shown = to_text(report, width=100)
    assert "\x1b" not in shown and "bad\\x1b[31m\\nname" in shown
    assert max(map(len, shown.splitlines())) < 2100


def test_list_reports_a_broken_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("PATCH = 1\n")
    monkeypatch.setenv("ASCEND_HOTFIX_PATH", str(tmp_path))
    assert cli.main(["list"]) == 1
    assert "broken.py" in capsys.readouterr().err


def test_static_stage_imports_neither_torch_nor_vllm(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ascend_hotfix.cli import main\n"
        f"assert main(['doctor', {str(tiny().write(tmp_path))!r}, '--static-only']) == 0\n"
        "print([m for m in ('torch', 'vllm', 'vllm_ascend', 'transformers', 'safetensors', 'wrapt') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m ascend_hotfix.cli doctor {faulty().write(tmp_path)} --static-only | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "ascend_hotfix.cli", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120)
    assert (
        done.returncode == 2 and done.stderr == "ascend-hotfix: the output cannot be written: No space left on device\n"
    )


def test_locale_that_cannot_show_the_text_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ascend_hotfix.cli", "doctor", str(tmp_path / "权重"), "--language", "zh"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, env=environment)
    assert done.returncode == 2 and "\\u6743\\u91cd" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("text", ["", "1", "1.x", "0.1", "1.2;2.1", "1.2,1.3"])
def test_choices_that_are_none_are_a_usage_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", str(tmp_path), "--suggest", "mine.py", "--choose", text])
    assert stopped.value.code == 2
    assert "is not a list of choices such as 1.2,2.1" in capsys.readouterr().err


def test_choices_without_a_file_to_write_are_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(tmp_path), "--choose", "1.2,2.0"]) == 2
    assert "--suggest FILE" in capsys.readouterr().err


@pytest.mark.parametrize(("language", "label"), [("en", "one of"), ("zh", "任选其一")])
def test_alternatives_of_a_choice_are_all_shown(language: str, label: str) -> None:
    lines = tuple(f'1.{n}  weights=(Segments("a", "b{n}"),)' for n in range(1, 5))
    params = {"number": "1", "what": "no parameter takes 4 tensors", "first": "1.1", "file": "mine.py"}
    params["alternatives"] = "\n".join(lines)
    report = Report("dir", Options(), findings=[Finding("suggest-choice", "mine.py", params=params)])
    assert problems(to_json(report), schema()) == []
    text = to_text(report, width=120, language=language)
    assert label in text and all(line in text for line in lines)
    assert "ascend-hotfix doctor dir --suggest mine.py --choose 1.1" in text


def test_a_suggestion_that_the_disk_does_not_take_loses_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Finding("lookup-missing", "target", params={"asked": "a", "known": "b"}, stage="dry-run")
    made = trial.Suggestion('"""A patch."""\n', [found])
    monkeypatch.setattr(trial, "suggestion", lambda *_: made)
    report, target = Report("model", Options()), tmp_path / "gone" / "p.py"
    assert trial.write_suggestion(None, report, target, Split(), [found]) == []  # type: ignore[arg-type]
    assert report.suggested == f"{target} is not written; --suggest failed: No such file or directory"


NAMES = [
    Finding("description-renamed", "d.json", params={"described": "a", "filed": "b"}),
    Finding("index-no-weight-map"),
]
FAULT = Finding("lookup-missing", "target", params={"asked": "a", "known": "b"}, stage="dry-run")


def test_what_is_said_of_names_is_a_note_where_the_dry_run_finds_them_all() -> None:
    found = run.settled(NAMES, [])
    assert [(one.code, one.severity) for one in found] == [(one.code, Severity.NOTE) for one in NAMES]
    assert found[0].message == NAMES[0].message and "finds all that is asked" in found[0].consequence
    assert "试加载能找到所查询的一切" in found[0].sentences("zh")[1] and found[1] == NAMES[1]
    assert run.settled(NAMES, [FAULT]) == NAMES


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "Value error, Class validation failed:\n  ValueError: 3 layers [type=x]",
            "Class validation failed: ValueError: 3 layers",
        ),
        ("4 heads must be divisible", "4 heads must be divisible"),
        ("nothing follows:", "nothing follows:"),
        ("", ""),
    ],
)
def test_an_error_is_told_with_its_reason(error: str, said: str) -> None:
    assert _short(ValueError(error)) == f"ValueError: {said}"


def test_what_is_to_be_pasted_is_never_broken() -> None:
    report = Report("/a folder of models/x", Options(), findings=[Finding("description-name", "q d.json"), CHOICE])
    lines = to_text(report, width=40).splitlines()
    for whole in (
        "'/a folder of models/x'/quant_model_description.json",
        "1.1  " + "drop=(Drop('a.b.c'),)  # one of them",
    ):
        assert any(whole in line for line in lines), whole


CHOICE = Finding(
    "suggest-choice",
    "p.py",
    params={
        "number": "1",
        "what": "w",
        "first": "1.1",
        "file": "p.py",
        "alternatives": "1.1  drop=(Drop('a.b.c'),)  # one of them",
    },
)


def test_a_phrase_stays_one_when_it_is_copied() -> None:
    found = Finding("no-safetensors", "x", params={"found": Phrase("and more", names=Phrase("nothing"), count=3)})
    for one in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert one == found and one.sentences("zh")[0] == found.sentences("zh")[0]
        assert "没有任何文件 等，另有 3 个" in one.sentences("zh")[0]
