"""Broken checkpoints: each is a right one in which one thing is damaged, the thing and the place drawn by a seed.

A damage takes the generator and the folder of a right checkpoint and changes a file of it. None needs more than a few
megabytes on the disk.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ESCAPES = (
    "\x1b[31mred\x1b[0m",
    "\n  fake line",
    "\r\x1b[2K",
    "\x9b31m",
    "\u202eright to left",
    "\udc80",
    "\0",
    "\x1b]0;title\x07",
)
HUGE = (0, -1, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, 10**300, 10**4000)
SIZES = (
    *("num_hidden_layers", "num_experts", "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "intermediate_size", "moe_intermediate_size", "max_position_embeddings", "num_nextn_predict_layers"),
)


def _load(path: Path) -> Any:
    return json.loads(path.read_text())


def _save(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _weights(root: Path) -> Path:
    return next(root.glob("*.safetensors"))


def _header(root: Path) -> tuple[dict[str, Any], bytes]:
    data = _weights(root).read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), data[end:]


def _put(root: Path, header: Any, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8", "surrogatepass")
    _weights(root).write_bytes(struct.pack("<Q", len(text)) + text + data)


def _entry(dtype: str = "I8", shape: Any = (1,), offsets: Any = (0, 1)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def dimensions(random: Random, root: Path) -> None:
    """Shapes of very many or very large dimensions."""
    header, data = _header(root)
    for name in random.sample(sorted(header), 5):
        many = random.choice((1, 3, 65, 5000))
        header[name]["shape"] = [random.choice(HUGE) for _ in range(many)]
    _put(root, header, data)


def thousands_of_dimensions(random: Random, root: Path) -> None:
    header, data = _header(root)
    digit = random.choice("123456789")
    header.update({f"huge.{n}.weight": _entry(shape=[int(digit * 4000)] * 2000) for n in range(2)})
    _put(root, header, data)


def offsets(random: Random, root: Path) -> None:
    """Offsets that no file has."""
    header, data = _header(root)
    for name in random.sample(sorted(header), 5):
        header[name]["data_offsets"] = [random.choice(HUGE), random.choice(HUGE)]
    _put(root, header, data)


def kinds(random: Random, root: Path) -> None:
    """Values of another kind than the format's."""
    header, data = _header(root)
    for name in random.sample(sorted(header), 3):
        header[name][random.choice(("dtype", "shape", "data_offsets"))] = random.choice(
            (None, True, 1.5, "x", [], {}, [[1]], ["1"], [None, None], [1.0, 2], [True, False])
        )
    _put(root, header, data)


def nesting(random: Random, root: Path) -> None:
    """JSON that is nested deeper than a reader can follow."""
    text = random.choice((b"[", b'{"a":')) * random.choice((900, 5000, 200_000))
    target = random.choice(("weights", "config.json", "quant_model_description.json"))
    _put(root, text) if target == "weights" else (root / target).write_bytes(text)


def names(random: Random, root: Path) -> None:
    """Names with escapes, line breaks and thousands of segments or characters, in every file."""
    odd = random.choice((*ESCAPES, "a." * 5000, "x" * 100_000, "layers.1." * 3000, "." * 50))
    header, data = _header(root)
    description = _load(root / "quant_model_description.json")
    for name in random.sample(sorted(header), 5):
        renamed = name.replace("mlp", odd, 1) if "mlp" in name else f"{odd}.{name}"
        header[renamed] = header.pop(name)
        if random.random() < 0.5 and name in description:
            description[renamed if random.random() < 0.5 else odd] = description.pop(name)
    _put(root, header, data)
    _save(root / "quant_model_description.json", description)


def numbered(random: Random, root: Path) -> None:
    """Thousands of lists of layers or experts, each with one far number."""
    header, data = _header(root)
    description = _load(root / "quant_model_description.json")
    form = random.choice(
        ("a{}.layers.9999.x.weight", "model.layers.{}.mlp.experts.9999.gate_proj.weight", "layers.{0}.m{0}.weight")
    )
    for number in range(3000):
        header[form.format(number)] = _entry()
        description[form.format(number)] = "W8A8"
    _put(root, header, data)
    _save(root / "quant_model_description.json", description)


def alike(random: Random, root: Path) -> None:
    """Very many names that are each other's, but for a part of which nobody can say what it means."""
    header, data = _header(root)
    description = _load(root / "quant_model_description.json")
    for number in range(6000):
        header[f"one{number}.fc.weight"] = _entry(shape=(1, 1))
        description[f"other{number}.fc.weight"] = random.choice(("W8A8", "FLOAT"))
    _put(root, header, data)
    _save(root / "quant_model_description.json", description)


def neighbours(random: Random, root: Path) -> None:
    """Very many children of one module, of which each begins as the one before."""
    header, data = _header(root)
    description = _load(root / "quant_model_description.json")
    for number in range(3000):
        name = f"model.layers.0.mlp.g{'a' * (number % 300)}{number}.weight"
        header[name] = _entry(shape=(1, 1))
        description[name] = random.choice(("W8A8_DYNAMIC", "FLOAT"))
    _put(root, header, data)
    _save(root / "quant_model_description.json", description)


def schemes(random: Random, root: Path) -> None:
    """Every entry another scheme that nobody knows."""
    description = _load(root / "quant_model_description.json")
    text = random.choice((*ESCAPES, "W8A8" * 2000, "w8a8", "INT8 "))
    for number, name in enumerate(list(description)):
        if "." in name:
            description[name] = f"{text}{number}"
    for number in range(4000):
        description[f"more.{number}.weight"] = f"{text}{number}"
    _save(root / "quant_model_description.json", description)


def entries(random: Random, root: Path) -> None:
    """Values of the description that are no scheme."""
    description = _load(root / "quant_model_description.json")
    for name in random.sample(sorted(description), 10):
        description[name] = random.choice((None, 1, [], {}, {"a": "b"}, True, 10**4000, 1e308, "", *ESCAPES))
    _save(root / "quant_model_description.json", description)


def sizes(random: Random, root: Path) -> None:
    """Sizes of config.json beyond reason."""
    config = _load(root / "config.json")
    for key in random.sample(SIZES, 3):
        config[key] = random.choice((*HUGE, 10**6, 10**7, 10**9, 1e300, float("inf")))
    where = random.choice((None, "text_config", "vision_config"))
    if where is not None:
        config[where] = {"model_type": "x", **{key: random.choice(HUGE) for key in random.sample((*SIZES, "depth"), 3)}}
    _save(root / "config.json", config)


def config_kinds(random: Random, root: Path) -> None:
    config = _load(root / "config.json")
    for key in random.sample(
        [*SIZES, "architectures", "model_type", "text_config", "quantization_config", "torch_dtype"], 4
    ):
        config[key] = random.choice((None, [], {}, "x", [1, "a"], -1, True, {"model_type": []}, *ESCAPES))
    _save(root / "config.json", config)


def lengths(random: Random, root: Path) -> None:
    """A length of the header that the file does not have, or a file that is cut."""
    path = _weights(root)
    data = path.read_bytes()
    if random.random() < 0.5:
        path.write_bytes(
            struct.pack("<Q", random.choice((0, 1, 1 << 20, 1 << 40, (1 << 63) + 1, (1 << 64) - 1))) + data[8:]
        )
    else:
        path.write_bytes(data[: random.randrange(len(data))])


def noise(random: Random, root: Path) -> None:
    """Bytes flipped in one of the files."""
    path = random.choice([one for one in root.iterdir() if one.is_file()])
    data = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 8, 64))):
        data[random.randrange(min(len(data), 20_000))] = random.randrange(256)
    path.write_bytes(bytes(data))


def repeated(random: Random, root: Path) -> None:
    """Keys that an object has many times, with long values."""
    long = json.dumps("v" * 200_000) if random.random() < 0.5 else json.dumps(list(range(50_000)))
    pairs = ",".join([f'"a.weight":{long}', *(f'"a.weight":{n}' for n in range(3000))])
    (root / random.choice(("config.json", "quant_model_description.json"))).write_text(f"{{{pairs}}}")


def files(random: Random, root: Path) -> None:
    """Files that are none, absent ones, and numbered ones of which most are not here."""
    path = random.choice([one for one in root.iterdir() if one.is_file()])
    how = random.choice(("pipe", "folder", "gone", "loop", "numbered", "empty"))
    if how == "numbered":
        for number in range(30):
            os.link(_weights(root), root / f"part{number}-00001-of-99999.safetensors")
        return
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "empty":
        path.touch()


def index(random: Random, root: Path) -> None:
    """An index of names and files that there are not."""
    path = next(root.glob("*.index.json"))
    content = _load(path)
    odd = random.choice((*ESCAPES, "../../etc/passwd", "/etc/passwd", "x" * 5000, ""))
    for name in random.sample(sorted(content["weight_map"]), 10):
        content["weight_map"][random.choice((name, odd))] = random.choice((odd, None, 1, [], "absent.safetensors"))
    _save(path, content)


DAMAGES: tuple[Callable[[Random, Path], None], ...] = (
    *(
        dimensions,
        thousands_of_dimensions,
        offsets,
        kinds,
        nesting,
        names,
        numbered,
        alike,
        neighbours,
        schemes,
        entries,
    ),
    *(sizes, config_kinds, lengths, noise, repeated, files, index),
)
