"""Mutation study of the static stage: random faults in genuine checkpoints, seeded; each must be found.

A fault counts as found where the diagnosis holds a fault or warning that the untouched checkpoint does not give. Only
faults that the files can show are made here; a wrong name that is the same in every file is for the dry run.
"""

from __future__ import annotations

import json
import random
import re
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from writer import DESCRIPTION, Spec, genuine, genuine_names

from ascend_hotfix.doctor.checkpoint import NotACheckpoint, read_checkpoint
from ascend_hotfix.doctor.findings import Finding, Severity
from ascend_hotfix.doctor.schemes import is_float, scheme_of
from ascend_hotfix.doctor.static import check_static

# Seeds of the faults of each kind in each checkpoint
SEEDS = [range(1), pytest.param(range(1, 8), marks=pytest.mark.longer)]
Fault = Callable[[Spec, random.Random], str | None]  # what was done, or None where the checkpoint has no place for it


def serious(root: Path) -> set[tuple[str, int, str]]:
    try:
        findings = check_static(read_checkpoint(root))
    except NotACheckpoint as error:
        findings = [error.finding]
    return {key(f) for f in findings if f.severity > Severity.NOTE}


def key(finding: Finding) -> tuple[str, int, str]:
    return finding.code, finding.count, finding.message


@cache
def untouched(name: str) -> set[tuple[str, int, str]]:
    """What is found in the checkpoint as it is."""
    with tempfile.TemporaryDirectory() as folder:
        return serious(genuine(name).write(Path(folder)))


def described(spec: Spec) -> list[str]:
    """Names of the tensors that the description knows."""
    assert spec.description is not None
    return [name for name in spec.main if name in spec.description]


def quantized(spec: Spec) -> list[str]:
    """Modules with a quantized weight."""
    assert spec.description is not None
    weights = [n for n in described(spec) if n.endswith(".weight")]
    return [n.removesuffix(".weight") for n in weights if not is_float(spec.description[n])]


def pick(names: list[str], rng: random.Random) -> str | None:
    return rng.choice(sorted(names)) if names else None


def drop_from_files(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None:
        spec.drop(name, described=False, listed=False)
    return name


def drop_from_files_and_index(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None:
        spec.drop(name, described=False)
    return name


def drop_from_index(spec: Spec, rng: random.Random) -> str | None:
    maps = spec.weight_maps()
    name = pick(list(spec.main), rng) if maps else None
    if name is not None:
        maps[0].pop(name)
    return name


def rename_in_index(spec: Spec, rng: random.Random) -> str | None:
    name = drop_from_index(spec, rng)
    if name is not None:
        spec.weight_maps()[0][f"renamed.{name}"] = next(iter(spec.files))
    return name


def rename_in_file(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None:
        spec.main[name.replace(".", ".inserted.", 1) if "." in name else f"inserted.{name}"] = spec.main.pop(name)
    return name


def drop_entry(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None and spec.description is not None:
        spec.description.pop(name)
    return name


def rename_entry(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None and spec.description is not None:
        spec.description[f"wrapper.{name}"] = spec.description.pop(name)
    return name


def misspell_scheme(spec: Spec, rng: random.Random) -> str | None:
    name = pick(described(spec), rng)
    if name is not None and spec.description is not None:
        spec.description[name] += rng.choice(["_STATIC", "X", "_DYNAMIC_DYNAMIC"])
    return name


def entry_is_no_text(spec: Spec, rng: random.Random) -> str | None:
    name = pick([n for n in described(spec) if "." in n], rng)
    if name is not None and spec.description is not None:
        spec.description[name] = rng.choice([None, 8, ["W8A8"], {"type": "W8A8"}, True])
    return name


def weight_said_to_be_float(spec: Spec, rng: random.Random) -> str | None:
    module = pick(quantized(spec), rng)
    if module is not None and spec.description is not None:
        spec.description[f"{module}.weight"] = "FLOAT"
    return module


def float_said_to_be_quantized(spec: Spec, rng: random.Random) -> str | None:
    assert spec.description is not None
    name = pick([n for n in described(spec) if is_float(spec.description[n])], rng)
    if name is not None:
        spec.description[name] = rng.choice(["W8A8", "W8A8_DYNAMIC", "W4A8_DYNAMIC", "W8A8_MXFP8"])
    return name


def companion_said_to_be_other(spec: Spec, rng: random.Random) -> str | None:
    assert spec.description is not None
    name = pick([n for n in described(spec) if n.endswith(("_scale", "_offset", "quant_bias", "scale_bias"))], rng)
    if name is not None:
        others = ["W8A8", "W8A8_DYNAMIC", "FLOAT", "W4A8_DYNAMIC", "W8A16"]
        spec.description[name] = rng.choice([s for s in others if s != spec.description[name]])
    return name


def lose_companion(spec: Spec, rng: random.Random) -> str | None:
    """One companion gone from every file, as if never written."""
    assert spec.description is not None
    names = []
    for module in quantized(spec):
        scheme = scheme_of(spec.description[f"{module}.weight"])
        rules = scheme.companions if scheme is not None else {}
        names += [
            f"{module}.{leaf}" for leaf, rule in rules.items() if rule.required and f"{module}.{leaf}" in spec.main
        ]
    name = pick(names, rng)
    if name is not None:
        spec.drop(name)
    return name


def lose_weight(spec: Spec, rng: random.Random) -> str | None:
    """The weight gone from every file, its companions left."""
    module = pick(quantized(spec), rng)
    if module is not None:
        spec.drop(f"{module}.weight")
    return module


def _experts(spec: Spec) -> list[str]:
    return sorted({m[0] for n in spec.main if (m := re.match(r".+\.experts\.\d+", n))})


def lose_expert(spec: Spec, rng: random.Random) -> str | None:
    expert = pick(_experts(spec), rng)
    for name in [n for n in spec.main if expert is not None and n.startswith(f"{expert}.")]:
        spec.drop(name)
    return expert


def lose_part_of_expert(spec: Spec, rng: random.Random) -> str | None:
    name = pick([n for n in spec.main if ".experts." in n], rng)
    if name is not None:
        spec.drop(name)
    return name


def lose_layer(spec: Spec, rng: random.Random) -> str | None:
    layers = spec.config.get("num_layers") or next(_values(spec.config, "num_hidden_layers"))
    starts = {m[1] for n in spec.main if (m := re.match(r"((?:.+\.)?layers\.)\d+\.", n))}
    other = {"visual", "vision_model", "audio_tower", "encoder", "mtp"}
    stack = pick([start for start in starts if other.isdisjoint(start.split("."))], rng)
    layer = f"{stack}{rng.randrange(layers)}."
    for name in [n for n in spec.main if n.startswith(layer)]:
        spec.drop(name)
    return layer


def _values(config: dict[str, object], wanted: str):  # type: ignore[no-untyped-def]
    for name, value in config.items():
        if name == wanted:
            yield value
        elif isinstance(value, dict):
            yield from _values(value, wanted)


def shard_left_float(spec: Spec, rng: random.Random) -> str | None:
    """One shard of a fused layer as msModelSlim's fallback leaves it: bf16, FLOAT, no companions."""
    assert spec.description is not None
    ends = (".q_proj", ".k_proj", ".v_proj", ".gate_proj", ".up_proj", ".q_a_proj", ".kv_a_proj_with_mqa", ".w1", ".w3")
    module = pick([m for m in quantized(spec) if m.endswith(ends)], rng)
    if module is None:
        return None
    for name in [n for n in spec.main if n.startswith(f"{module}.") and not n.endswith((".weight", ".bias"))]:
        spec.drop(name)
    spec.change(f"{module}.weight", dtype="BF16")
    spec.description[f"{module}.weight"] = "FLOAT"
    return module


def other_dtype(spec: Spec, rng: random.Random) -> str | None:
    """A quantized weight stored as something else, the file itself valid."""
    module = pick(quantized(spec), rng)
    if module is not None:
        spec.change(f"{module}.weight", dtype=rng.choice(["BF16", "F16", "F32", "I32"]))
    return module


def float_stored_as_int8(spec: Spec, rng: random.Random) -> str | None:
    assert spec.description is not None
    names = [n for n, (_, shape) in spec.main.items() if n.endswith(".weight") and len(shape) > 1]
    name = pick([n for n in names if is_float(spec.description.get(n, ""))], rng)
    if name is not None:
        spec.change(name, dtype="I8")
    return name


def companion_of_other_length(spec: Spec, rng: random.Random) -> str | None:
    leaves = (".weight_scale", ".weight_offset", ".deq_scale", ".quant_bias", ".input_scale", ".scale_bias")
    name = pick([n for n in spec.main if n.endswith(leaves)], rng)
    if name is not None:
        shape = spec.main[name][1]
        spec.change(name, shape=[shape[0] + rng.choice([1, 8, 64]), *shape[1:]])
    return name


def weight_of_other_length(spec: Spec, rng: random.Random) -> str | None:
    """Rows cut off or added: the scales tell."""
    module = pick(quantized(spec), rng)
    if module is not None:
        rows, columns = spec.main[f"{module}.weight"][1]
        spec.change(f"{module}.weight", shape=[rows + rng.choice([-8, 8, 16]), columns])
    return module


SPEC_FAULTS: list[Fault] = [
    drop_from_files,
    drop_from_files_and_index,
    drop_from_index,
    rename_in_index,
    rename_in_file,
    drop_entry,
    rename_entry,
    misspell_scheme,
    entry_is_no_text,
    weight_said_to_be_float,
    float_said_to_be_quantized,
    companion_said_to_be_other,
    lose_companion,
    lose_weight,
    lose_expert,
    lose_part_of_expert,
    lose_layer,
    shard_left_float,
    other_dtype,
    float_stored_as_int8,
    companion_of_other_length,
    weight_of_other_length,
]


@pytest.mark.parametrize("name", genuine_names())
@pytest.mark.parametrize("fault", SPEC_FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_fault_in_what_the_files_say_is_found(seeds: range, fault: Fault, name: str, tmp_path: Path) -> None:
    right = genuine(name)
    before = untouched(name)
    made = 0
    for number in seeds:
        spec = right.copy()
        done = fault(spec, random.Random(f"{fault.__name__} {name} {number}"))
        if done is None:
            continue
        made += 1
        assert serious(spec.write(tmp_path / str(number))) - before, f"{fault.__name__} of {done} is not found"
    if not made:
        assert fault in (drop_from_index, rename_in_index, lose_expert, lose_part_of_expert), "no place for the fault"


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def grow(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randrange(1, 64))


def lose_bytes_inside(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(8, len(data) - 16)
    return data[:at] + data[at + rng.randrange(1, 16) :]


def overwrite_header(data: bytes, rng: random.Random) -> bytes:
    length = struct.unpack("<Q", data[:8])[0]
    at = rng.randrange(8, 8 + length - 32)
    return data[:at] + rng.randbytes(16) + data[at + 16 :]


def overwrite_length(data: bytes, rng: random.Random) -> bytes:
    return (
        struct.pack("<Q", struct.unpack("<Q", data[:8])[0] + rng.choice([-9, -1, 1, 17, 1 << 20, 1 << 60])) + data[8:]
    )


@pytest.mark.parametrize("name", genuine_names())
@pytest.mark.parametrize("damage", [cut, grow, lose_bytes_inside, overwrite_header, overwrite_length])
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_damage_to_a_weight_file_is_found(
    seeds: range, damage: Callable[[bytes, random.Random], bytes], name: str, tmp_path: Path
) -> None:
    spec = genuine(name)
    root = spec.write(tmp_path)
    before = untouched(name)
    for number in seeds:
        rng = random.Random(f"{damage.__name__} {name} {number}")
        file = root / rng.choice(sorted(spec.files))
        kept = file.read_bytes()
        file.write_bytes(damage(kept, rng))
        assert serious(root) - before
        file.write_bytes(kept)


@pytest.mark.parametrize("name", genuine_names())
def test_missing_file_is_found(name: str, tmp_path: Path) -> None:
    spec = genuine(name)
    root = spec.write(tmp_path)
    before = untouched(name)
    for file in ["config.json", DESCRIPTION, *spec.files]:
        kept = (root / file).read_bytes()
        (root / file).unlink()
        assert serious(root) - before, file
        (root / file).write_bytes(kept)


def test_any_bytes_give_findings_and_never_a_traceback(tmp_path: Path) -> None:
    """Random damage to every file, JSON ones included, whatever it leaves."""
    rng = random.Random("bytes")
    for number in range(60):
        spec = genuine(rng.choice(genuine_names()))
        root = spec.write(tmp_path / str(number))
        files = [p for p in sorted(root.rglob("*")) if p.is_file()]
        for file in rng.sample(files, k=min(2, len(files))):
            data = bytearray(file.read_bytes())
            for _ in range(rng.randrange(1, 40)):
                at = rng.randrange(len(data))
                data[at : at + 1] = rng.choice([b"", b"\x00", b"}", b"[", b'"', b"9", rng.randbytes(3), b"null", b"-1"])
            file.write_bytes(bytes(data))
        serious(root)


@pytest.mark.parametrize("content", [None, 1, "text", [], {}, {"a": {"b": {"c": []}}}, [[[]]], 1e999])
@pytest.mark.parametrize(
    "where", ["quantization_config", "text_config", "architectures", "num_hidden_layers", "num_experts"]
)
def test_config_of_any_shape_gives_no_traceback(where: str, content: object, tmp_path: Path) -> None:
    spec = genuine("qwen3_vl_moe-w8a8")
    spec.config[where] = content
    serious(spec.write(tmp_path))


@pytest.mark.parametrize("content", [None, 1, "text", [], {"weight_map": []}, {"weight_map": {"a": 1, "b": None}}])
def test_index_of_any_shape_gives_no_traceback(content: object, tmp_path: Path) -> None:
    root = genuine("qwen3_moe-w4a8").write(tmp_path)
    (root / "quant_model_weights.safetensors.index.json").write_text(json.dumps(content))
    assert serious(root)
