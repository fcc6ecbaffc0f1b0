"""Broken patches: files that are no Python, end early, refuse to be told, or hold what no record takes."""

from __future__ import annotations

from random import Random

HEAD = "from ascend_hotfix.records import *\n"
GOOD = (
    HEAD + "PATCH = ModelPatch(model_types=('x',), fixes=(Fix(id='a', why='w', refs=('r',), "
    "versions={{'vllm': {versions}}}, lookup=({rule},)),))\n"
)
RAISES = """
class {name}({base}):
    def __str__(self):
        {body}
    __repr__ = __str__
raise {name}("\\x1b[31m\\n")
"""
VALUES = (
    *(
        "None",
        "True",
        "10**5000",
        "-10**5000",
        "1e400",
        "'\\x1b[31m'",
        "'\\n'",
        "'a' * 100_000",
        "'.' * 1000",
        "b'x'",
        "[]",
    ),
    *(
        "{}",
        "object()",
        "float('nan')",
        "type('T', (), {'__repr__': lambda s: 1 / 0})()",
        "'*' * 50",
        "''",
        "'1' * 5000",
    ),
)
RULES = ("Prefix", "Exact", "Segments", "Suffix", "Layers", "Regex", "Packed", "Scheme", "Fill", "Nothing")


def broken(random: Random) -> str:
    """The text of a patch that is wrong in one way or another; some may be right by chance."""
    kind = random.choice(("raise", "rule", "rule", "rule", "versions", "text", "huge", "ends", "patch"))
    if kind == "raise":
        base = random.choice(
            ("Exception", "ValueError", "KeyError", "SystemExit", "BaseException", "SyntaxError", "OSError")
        )
        body = random.choice(
            ("raise RuntimeError", "return 1", "return None", "raise SystemExit", "return '\\x1b' * 9", "1 / 0")
        )
        return HEAD + RAISES.format(name="Odd", base=base, body=body)
    if kind == "rule":
        arguments = ", ".join(random.choice(VALUES) for _ in range(random.choice((1, 2, 2, 2, 3))))
        rule = f"{random.choice(RULES)}({arguments})"
        return GOOD.format(versions="'>=0.11'", rule=rule)
    if kind == "versions":
        spec = random.choice(
            ("'>=' + '9' * 5000", "'>=0.18,<0.17'", "'==0.18rc' + '1' * 4400", "'\\x1b[2J'", "None", "'>=1' * 900")
        )
        return GOOD.format(versions=spec, rule="Prefix('a', 'b')")
    if kind == "text":
        return random.choice(
            ("\0", "\x1b[31m", "def", "PATCH = (" * 500, "x = '" + "\ud7ff" * 9, "\t\n" * 100, "PATCH = " + "9" * 5000)
        )
    if kind == "huge":
        return random.choice(("x = " + "(" * 5000, "x = " + "-" * 50_000 + "1", "[" * 90, "x = 1\n" * 300_000))
    if kind == "ends":
        return HEAD + random.choice(
            ("exit(3)", "raise SystemExit('\\x1b[31m')", "import vllm", "import absent_\\u202e", "raise BaseException")
        )
    return HEAD + f"PATCH = {random.choice(VALUES)}\nPATCHES = {random.choice(VALUES)}\n"
