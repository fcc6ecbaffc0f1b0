"""Counts, names and errors as messages say them. This module imports nothing of ours.

Names of tensors, modules, files and settings are other people's: a terminal or a log that is given one as it is obeys
its escape sequences and takes what follows a line break for a line of its own. :func:`printable` is how a name is said.
"""

from __future__ import annotations

__all__ = ["LONGEST", "counted", "printable", "said", "text_of"]

LONGEST = 2000  # characters of one text that are shown


def counted(number: int, one: str, more: str = "") -> str:
    """``1 tensor``, ``2 tensors``; *more* where an s does not make the plural."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def printable(text: object, longest: int = LONGEST) -> str:
    r"""*text* in one line without control and format characters, each as its escape, cut where it is absurdly long.

    >>> print(printable("a.\x1b[31m\nb"))
    a.\x1b[31m\nb
    """
    name = text if type(text) is str else text_of(text)
    shown = name if len(name) <= longest else name[:longest]
    if not shown.isprintable():
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)
    return shown if len(name) <= longest else f"{shown}... ({len(name)} characters)"


def text_of(value: object) -> str:
    """``str(value)``, or an empty string where that raises, as it may for an object from a patch or from upstream."""
    try:
        return str.__str__(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def said(error: BaseException) -> str:
    """Kind and text of an exception in one printable line, whatever its ``__str__`` does."""
    kind, text = printable(type(error).__name__), printable(" ".join(text_of(error).split()))
    return f"{kind}: {text}" if text else kind
