"""Reading a checkpoint directory: what the headers, index and description say, and what cannot be read."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from writer import DESCRIPTION, INDEX, MAIN, Spec, genuine, genuine_names, tiny, write_safetensors

from ascend_hotfix.doctor.checkpoint import Checkpoint, NotACheckpoint, model_types, read_checkpoint, text_config

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def codes(checkpoint: Checkpoint) -> list[str]:
    return [finding.code for finding in checkpoint.findings]


def edit_header(path: Path, change: object) -> None:
    """Rewrite the header of a safetensors file through *change*, the data untouched."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    change(header)  # type: ignore[operator]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_reads_names_dtypes_and_shapes_without_tensor_data(tmp_path: Path) -> None:
    spec = tiny()
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert {n: (t.dtype, list(t.shape)) for n, t in checkpoint.tensors.items()} == spec.main
    assert checkpoint.description is not None and checkpoint.description.schemes[Q_PROJ] == "W8A8"
    assert checkpoint.description.meta("version") == "1.0.0"
    assert checkpoint.index is not None and checkpoint.index.file == INDEX
    assert checkpoint.findings == ()


@pytest.mark.parametrize("name", genuine_names())
def test_genuine_checkpoints_read_without_a_fault(name: str, tmp_path: Path) -> None:
    spec = genuine(name)
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert set(codes(checkpoint)) <= {"index-no-weight-map"}
    stored = {n for file, tensors in spec.files.items() if "/" not in file for n in tensors}
    assert set(checkpoint.tensors) == stored
    assert checkpoint.description is not None and set(checkpoint.description.schemes) <= stored


def test_omni_index_without_weight_map_is_a_note_and_metadata_is_found_under_its_prefix(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(genuine("qwen2_5_omni-w8a8").write(tmp_path))
    assert codes(checkpoint) == ["index-no-weight-map"]
    assert checkpoint.index is not None and not checkpoint.index.wrapped
    assert checkpoint.description is not None and checkpoint.description.meta("version") == "1.0.0"
    assert model_types(checkpoint.config)[:2] == ("qwen2_5_omni", "qwen2_5_omni_thinker")
    assert text_config(checkpoint.config)["num_hidden_layers"] == 2


def test_optional_folder_is_kept_apart(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(genuine("deepseek_v3-w4a8c8").write(tmp_path))
    assert set(checkpoint.extras) == {"global_rotation"}
    assert "global_rotation" not in checkpoint.tensors


def test_optional_file_that_the_description_names_is_missed(tmp_path: Path) -> None:
    root = genuine("deepseek_v3-w4a8c8").write(tmp_path)
    (root / "optional/quarot.safetensors").unlink()
    assert codes(read_checkpoint(root)) == ["optional-file-absent"]


def _cut(root: Path) -> None:
    data = (root / MAIN).read_bytes()
    (root / MAIN).write_bytes(data[: len(data) * 2 // 3])


def _cut_header(root: Path) -> None:
    (root / MAIN).write_bytes((root / MAIN).read_bytes()[:200])


def _append(root: Path) -> None:
    with (root / MAIN).open("ab") as file:
        file.write(b"rest of an older file")


def _garbage(root: Path) -> None:
    (root / MAIN).write_bytes(b"\xff" * 4096)


def _bad_json_header(root: Path) -> None:
    data = (root / MAIN).read_bytes()
    (root / MAIN).write_bytes(data.replace(b'"dtype"', b'"dtype', 1))


def _wrong_dtype(root: Path) -> None:
    edit_header(root / MAIN, lambda h: h[Q_PROJ].update(dtype="BF16"))


def _unknown_dtype(root: Path) -> None:
    edit_header(root / MAIN, lambda h: h[Q_PROJ].update(dtype="I7"))


def _overlap(root: Path) -> None:
    def move(header: dict[str, dict[str, list[int]]]) -> None:
        begin, end = header[Q_PROJ]["data_offsets"]
        header[Q_PROJ]["data_offsets"] = [begin - 8, end - 8]

    edit_header(root / MAIN, move)


def _no_shape(root: Path) -> None:
    edit_header(root / MAIN, lambda h: h[Q_PROJ].pop("shape"))


def _pointer(root: Path) -> None:
    (root / MAIN).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def _empty(root: Path) -> None:
    (root / MAIN).write_bytes(b"")


def _dangling(root: Path) -> None:
    (root / MAIN).unlink()
    (root / MAIN).symlink_to(root / "blobs" / "gone")


def _pipe(root: Path) -> None:
    (root / MAIN).unlink()
    os.mkfifo(root / MAIN)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_cut, "file-truncated"),
        (_cut_header, "file-truncated"),
        (_append, "file-too-long"),
        (_garbage, "header-corrupt"),
        (_bad_json_header, "header-corrupt"),
        (_wrong_dtype, "tensor-size"),
        (_unknown_dtype, "dtype-unknown"),
        (_overlap, "tensor-offsets"),
        (_no_shape, "header-corrupt"),
        (_pointer, "lfs-pointer"),
        (_empty, "file-truncated"),
        (_dangling, "file-unreadable"),
        (_pipe, "file-unreadable"),
    ],
)
def test_damaged_weight_file_names_the_file_and_the_remedy(damage: object, code: str, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    damage(root)  # type: ignore[operator]
    finding = next(f for f in read_checkpoint(root).findings if f.code == code)
    assert finding.place == MAIN and MAIN in finding.message and finding.remedy


@pytest.mark.parametrize("file", ["config.json", DESCRIPTION, INDEX])
@pytest.mark.parametrize("content", ["", "{", '{"a": "b"', "\x00\x01", '{"a":' * 5000])
def test_corrupt_json_is_a_finding_with_its_file(file: str, content: str, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / file).write_text(content)
    finding = next(f for f in read_checkpoint(root).findings if f.code == "json-corrupt")
    assert finding.place == file


@pytest.mark.parametrize("file", ["config.json", DESCRIPTION, INDEX])
@pytest.mark.parametrize(
    ("content", "kind"), [("[1]", "a list"), ('"x"', "a string"), ("null", "null"), ("1", "a number")]
)
def test_json_without_an_object_at_its_top(file: str, content: str, kind: str, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / file).write_text(content)
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place, finding.params["kind"]) == ("json-kind", file, kind)


@pytest.mark.parametrize("file", ["config.json", DESCRIPTION, INDEX])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_that_upstream_cannot_decode(file: str, encoding: str, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / file).write_text((root / file).read_text(), encoding=encoding)
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place) == ("json-encoding", file)


def test_line_ends_of_another_system_are_no_fault(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / "config.json").write_bytes(b'{\r\n "model_type": "qwen3_moe"\r\n}\r\n')
    assert codes(read_checkpoint(root)) == []


@pytest.mark.parametrize(
    ("file", "end", "example"),
    [
        ("config.json", ', "num_hidden_layers": 7}', "num_hidden_layers (3, then 7)"),
        (DESCRIPTION, ', "lm_head.weight": "W8A8"}', 'lm_head.weight ("FLOAT", then "W8A8")'),
    ],
)
def test_key_given_twice_with_two_values(file: str, end: str, example: str, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / file).write_text((root / file).read_text()[:-1] + end)
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place, finding.examples) == ("json-repeated", file, (example,))


def test_key_given_twice_inside_another_object(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    text = (root / "config.json").read_text()
    (root / "config.json").write_text(text[:-1] + ', "rope" : [{"theta": 1, "note": "a\\":", "theta" : 2}]}')
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.examples) == ("json-repeated", ("theta (1, then 2)",))


def test_key_given_twice_with_one_value_is_no_finding(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / "config.json").write_text((root / "config.json").read_text()[:-1] + ', "num_hidden_layers": 3}')
    assert codes(read_checkpoint(root)) == []


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("file", ["config.json", DESCRIPTION, INDEX, MAIN])
@pytest.mark.parametrize("make", [_pipe, _loop, _dangling, Path.mkdir])
def test_what_is_no_file_is_one_finding_and_nothing_waits_for_it(file: str, make: object, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / file).unlink()
    make(root / file)  # type: ignore[operator]
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place) == ("file-unreadable", file) and finding.params["problem"]


def test_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    root = tiny().write(tmp_path)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(NotACheckpoint, match="Permission denied") as error:
        read_checkpoint(root)
    assert error.value.finding.code == "file-unreadable"


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *arguments: object, **named: object) -> object:
        if path.name in (MAIN, DESCRIPTION):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **named)  # type: ignore[call-overload]

    root = tiny().write(tmp_path)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_bytes", lambda path: refuse(path, "rb").read())  # type: ignore[attr-defined]
    checkpoint = read_checkpoint(root)
    assert sorted((f.code, f.place) for f in checkpoint.findings) == [
        ("file-unreadable", DESCRIPTION),
        ("file-unreadable", MAIN),
    ]


def test_description_entries_that_are_no_strings_are_one_finding(tmp_path: Path) -> None:
    spec = tiny()
    assert spec.description is not None
    spec.description[Q_PROJ] = None
    spec.description["lm_head.weight"] = 1
    (finding,) = read_checkpoint(spec.write(tmp_path)).findings
    assert (finding.code, finding.examples) == ("description-entry", ("lm_head.weight", Q_PROJ)[::-1])
    assert finding.params["kind"] == "a number, null"


def test_second_description_is_noted(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / "quant_model_description_w4a8.json").write_text("{}")
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place) == ("description-unread", "quant_model_description_w4a8.json")


@pytest.mark.parametrize("file", ["../x.safetensors", "/x.safetensors", "sub/x.safetensors", f"./{MAIN}"])
def test_index_that_points_out_of_the_folder(file: str, tmp_path: Path) -> None:
    spec = tiny()
    for weight_map in spec.weight_maps():
        weight_map[Q_PROJ] = weight_map["lm_head.weight"] = file
    root = spec.write(tmp_path)
    (finding,) = read_checkpoint(root).findings  # the tensors are here and vLLM does not read an index of this name
    assert (finding.code, finding.place, finding.count, finding.examples) == ("index-path", INDEX, 2, (file,))
    (root / INDEX).rename(root / "model.safetensors.index.json")
    assert codes(read_checkpoint(root)) == ["index-outside"]


def test_index_that_lists_nothing(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / INDEX).unlink()
    (root / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert codes(read_checkpoint(root)) == ["index-empty"]


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd"])
def test_optional_file_outside_of_the_folder_is_not_opened(file: str, tmp_path: Path) -> None:
    spec = tiny()
    assert spec.description is not None
    spec.description["optional"] = {"quarot": {"rotation_map": {"a": file}}}
    root = spec.write(tmp_path / "model")
    (tmp_path / "secret").write_text("not yours")
    assert [(f.code, f.place) for f in read_checkpoint(root).findings] == [("optional-file-outside", file)]


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1])
def test_header_length_that_no_header_has(length: int, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    (root / MAIN).write_bytes(struct.pack("<Q", length) + (root / MAIN).read_bytes()[8:])
    (finding,) = read_checkpoint(root).findings
    assert (finding.code, finding.place) == ("header-corrupt", MAIN)


def test_file_cut_at_any_byte_of_its_header(tmp_path: Path) -> None:
    write_safetensors(tmp_path / MAIN, {"a.weight": ("F32", [1]), "b.weight": ("F32", [2])})
    (tmp_path / "config.json").write_text("{}")
    whole = (tmp_path / MAIN).read_bytes()
    for size in range(len(whole)):
        (tmp_path / MAIN).write_bytes(whole[:size])
        (finding,) = read_checkpoint(tmp_path).findings
        assert (finding.code, finding.params["found"]) == ("file-truncated", str(size))


@pytest.mark.parametrize("about", ["x", {"format": 1}])
def test_metadata_that_safetensors_refuses(about: object, tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    edit_header(root / MAIN, lambda header: header.update(__metadata__=about))
    assert codes(read_checkpoint(root)) == ["header-corrupt"]


def test_header_in_another_encoding(tmp_path: Path) -> None:
    header = '{"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}'.encode("utf-16-le")
    (tmp_path / MAIN).write_bytes(struct.pack("<Q", len(header)) + header + b"1")
    (tmp_path / "config.json").write_text("{}")
    assert codes(read_checkpoint(tmp_path)) == ["header-corrupt"]


def test_config_nested_a_thousand_times_is_read(tmp_path: Path) -> None:
    config: dict[str, object] = {"num_hidden_layers": 3}
    for _ in range(5000):
        config = {"text_config": config}
    assert text_config(config) == {"num_hidden_layers": 3}


def _two_files(spec: Spec) -> tuple[str, str]:
    """Split the weights over two files as a large export is."""
    first, second = (f"quant_model_weights-0000{n}-of-00002.safetensors" for n in (1, 2))
    names = list(spec.main)
    half = len(names) // 2
    content = spec.files.pop(MAIN)
    spec.files[first] = {n: content[n] for n in names[:half]}
    spec.files[second] = {n: content[n] for n in names[half:]}
    for weight_map in spec.weight_maps():
        weight_map.update({n: f for f, tensors in spec.files.items() for n in tensors})
    return first, second


def _every_file(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        for path in root.glob("*.safetensors"):
            change(path)

    return damage


def _other_index(root: Path) -> None:
    named = {"a": "model.safetensors"}
    (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))
    write_safetensors(root / "model.safetensors", {"a": ("F32", [1])})


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (
            _every_file(lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")),
            "lfs-pointer",
        ),
        (_every_file(lambda path: path.write_bytes(b"")), "file-truncated"),
        (_every_file(lambda path: path.name.startswith("quant") and path.unlink()), "shard-file-absent"),
        (_other_index, "file-unread"),
    ],
)
def test_what_many_files_have_for_one_reason_is_one_finding(damage: Any, code: str, tmp_path: Path) -> None:
    spec = tiny()
    files = _two_files(spec)
    spec.files["other.safetensors"] = {"b": ("F32", [1])}
    for weight_map in spec.weight_maps():
        weight_map["b"] = "other.safetensors"
    root = spec.write(tmp_path)
    damage(root)
    (finding,) = [f for f in read_checkpoint(root).findings if f.code == code]
    assert finding.place == "" and finding.count in (2, 3) and len(finding.examples) == 2
    assert (
        set(finding.examples) <= {*files, "other.safetensors"} and f"such as {finding.examples[0]}" in finding.message
    )


def test_file_named_in_the_index_is_missed(tmp_path: Path) -> None:
    spec = tiny()
    _, second = _two_files(spec)
    root = spec.write(tmp_path)
    (root / second).unlink()
    finding = read_checkpoint(root).findings[0]
    assert (finding.code, finding.place) == ("shard-file-absent", second)
    assert INDEX in finding.message


def test_a_file_that_the_index_names_and_nothing_needs_is_not_missed(tmp_path: Path) -> None:
    """vLLM reads those of the index's files that are there; every tensor is in one of them."""
    spec = tiny()
    first, second = _two_files(spec)
    spec.files[first].update(spec.files.pop(second))
    assert codes(read_checkpoint(spec.write(tmp_path))) == []


def test_an_index_of_a_name_that_vllm_does_not_read_does_no_harm(tmp_path: Path) -> None:
    spec = tiny()
    root = spec.write(tmp_path)
    (file,) = root.glob("*.safetensors")
    file.rename(root / "weights.safetensors")
    assert INDEX != "model.safetensors.index.json" and codes(read_checkpoint(root)) == []


def test_file_missing_from_the_numbering_is_missed_without_an_index(tmp_path: Path) -> None:
    spec = tiny()
    first, _ = _two_files(spec)
    spec.indexes.clear()
    root = spec.write(tmp_path)
    (root / first).unlink()
    assert [(f.code, f.place) for f in read_checkpoint(root).findings] == [("shard-file-absent", first)]


def test_index_of_the_float_model_left_in_the_folder(tmp_path: Path) -> None:
    spec = tiny()
    float_map = {n: "model-00001-of-00002.safetensors" for n in spec.main if n.endswith("weight")}
    spec.indexes["model.safetensors.index.json"] = {"weight_map": float_map}
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert codes(checkpoint) == ["index-stale"]
    assert checkpoint.index is not None and checkpoint.index.file == INDEX
    assert len(checkpoint.tensors) == len(spec.main)


def test_float_weights_beside_quantized_ones_are_duplicates(tmp_path: Path) -> None:
    spec = tiny()
    spec.files["model.safetensors"] = {Q_PROJ: ("BF16", [128, 64])}
    finding = read_checkpoint(spec.write(tmp_path)).findings[0]
    assert (finding.code, finding.examples) == ("tensor-duplicate", (Q_PROJ,))


def test_file_that_the_index_vllm_reads_does_not_name_is_skipped(tmp_path: Path) -> None:
    spec = tiny()
    spec.indexes["model.safetensors.index.json"] = spec.indexes.pop(INDEX)
    spec.files["extra.safetensors"] = {"model.extra.weight": ("BF16", [4])}
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert codes(checkpoint) == ["file-unread"]
    assert set(checkpoint.unread) == {"model.extra.weight"}


def test_index_vllm_reads_needs_its_weight_map(tmp_path: Path) -> None:
    spec = tiny()
    spec.indexes["model.safetensors.index.json"] = spec.indexes.pop(INDEX)["weight_map"]
    assert codes(read_checkpoint(spec.write(tmp_path))) == ["index-unusable"]


def test_description_under_a_variant_name_is_read_and_reported(tmp_path: Path) -> None:
    root = tiny().write(tmp_path)
    variant = "quant_model_description_w8a8_dynamic.json"
    (root / DESCRIPTION).rename(root / variant)
    checkpoint = read_checkpoint(root)
    assert codes(checkpoint) == ["description-name"]
    assert checkpoint.findings[0].remedy.startswith(f"ln -s {variant} ")
    assert checkpoint.description is not None and checkpoint.description.schemes[Q_PROJ] == "W8A8"


def test_description_inside_config_json_comes_first(tmp_path: Path) -> None:
    spec = tiny()
    assert spec.description is not None
    spec.config["quantization_config"] = {"quant_method": "ascend", **spec.description}
    spec.description = None
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert codes(checkpoint) == ["description-in-config"]
    assert checkpoint.description is not None and checkpoint.description.place == "config.json"
    assert checkpoint.description.schemes[Q_PROJ] == "W8A8"


def test_per_rank_export_is_read_rank_by_rank(tmp_path: Path) -> None:
    spec = tiny()
    content = spec.files.pop(MAIN)
    spec.indexes.clear()
    for rank in range(2):
        spec.files[f"model-rank-{rank}-part-0.safetensors"] = dict(content)
    checkpoint = read_checkpoint(spec.write(tmp_path))
    assert sorted(checkpoint.ranks) == [0, 1] and codes(checkpoint) == []


@pytest.mark.parametrize("what", ["absent", "file", "empty", "no weights", "rank folders"])
def test_path_that_is_no_model_directory(what: str, tmp_path: Path) -> None:
    root = tmp_path / "model"
    expected = {"absent": "not-a-directory", "file": "not-a-directory", "empty": "no-config"}
    if what == "file":
        root.write_text("")
    elif what != "absent":
        root.mkdir()
    if what in ("no weights", "rank folders"):
        (root / "config.json").write_text("{}")
    if what == "rank folders":
        write_safetensors(root / "rank_0" / MAIN, {"a.weight": ("F32", [1])})
    with pytest.raises(NotACheckpoint) as error:
        read_checkpoint(root)
    wanted = expected.get(what, "rank-folders" if what == "rank folders" else "no-safetensors")
    assert error.value.finding.code == wanted
    assert str(root) in str(error.value)
