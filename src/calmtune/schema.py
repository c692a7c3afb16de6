"""Text from a YAML file or a command line, typed by the annotation of the field it is meant for.

YAML's own typing is switched off: every scalar stays the text that was written, and the field says what it means. So
``1e-4`` is a number where a number is expected, and ``NO``, ``010`` and ``1:30`` stay text where text is expected.
"""

from __future__ import annotations

import difflib
import enum
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

NULLS = frozenset({"", "~", "null", "Null", "NULL", "None"})
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_NUMBER = re.compile(r"[+-]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# text that may stand in a file without quotes and is still text to every YAML reader
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")

_TOO_DEEP = "nested too deeply, or a value that contains itself; write plain values and lists"


@dataclass(frozen=True)
class Value:
    """A value before it has a type.

    Args:
        content: the text of a scalar, the elements of a list, or the entries of a mapping.
        where: file and line, or the flag; stands at the start of every message.
        quoted: whether quotes stood around the text, which keeps ``"null"`` text.
        bare: whether this is a flag without a value, which means true to a switch and is a fault elsewhere.
    """

    content: str | tuple[Value, ...] | Mapping[str, Value]
    where: str
    quoted: bool = False
    bare: bool = False


def read_yaml(text: str, name: str) -> tuple[dict[str, Value], list[str]]:
    """Parse a flat YAML mapping, all scalars as text.

    Args:
        text: the file's text.
        name: what to call the file in messages.

    Returns:
        The entries by key, and the faults found: broken syntax, a repeated key, something else than a mapping.

    Example:
        >>> entries, faults = read_yaml("learning_rate: 1e-4\\nanswer: NO", "run.yaml")
        >>> entries["answer"].content, entries["learning_rate"].where, faults
        ('NO', 'run.yaml:1', [])
    """
    faults: list[str] = []
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return {}, []
        value = _from_node(node, name, faults)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        return {}, [f"{where}: not valid YAML ({getattr(error, 'problem', None) or error})"]
    except RecursionError:
        return {}, [f"{name}: {_TOO_DEEP}"]
    if not isinstance(value.content, Mapping):
        return {}, [f"{name}: expected lines of the form key: value, got {_shape(value)}"]
    return dict(value.content), faults


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        ValueError: other bytes; the message names the file and the line.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: not UTF-8 ({error.reason}); save the file as UTF-8") from None


def read_flags(arguments: Sequence[str]) -> tuple[dict[str, Value], list[str]]:
    """Parse ``--key value``, ``--key=value``, ``--key a b c`` (a list) and ``--key`` (true).

    Returns:
        The values by key, and the faults found: a value before any flag, broken lists, a repeated flag.

    Example:
        >>> entries, _ = read_flags(["--learning-rate", "1e-4", "--bf16", "--test_ood", "a.jsonl", "b.jsonl"])
        >>> entries["learning_rate"].content, entries["bf16"].content, len(entries["test_ood"].content)
        ('1e-4', 'true', 2)
    """
    entries: dict[str, Value] = {}
    faults: list[str] = []
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            name, equals, rest = argument[2:].partition("=")
            groups.append([name, rest] if equals else [name])
        elif groups:
            groups[-1].append(argument)
        else:
            faults.append(f"{argument!r} stands before any flag; write --key value")
    for name, *words in groups:
        key, where = name.replace("-", "_"), f"--{name}"
        if key in entries:
            faults.append(f"{where}: {key!r} was already set by {entries[key].where}; keep one of them")
        texts = [_flag_value(word, where, faults) for word in words]
        if not texts:
            entries[key] = Value("true", where, bare=True)
        else:
            entries[key] = texts[0] if len(texts) == 1 else Value(tuple(texts), where)
    return entries, faults


def convert(value: Value, hint: Any) -> Any:
    """Give a value the type that an annotation asks for.

    Args:
        value: the text, list or mapping as read.
        hint: a resolved annotation: bool, int, float, str, Literal, an Enum, list, tuple, dict, and unions of these.

    Returns:
        The typed value; an Enum's member as its plain value, a tuple for ``tuple[X, ...]``.

    Raises:
        ValueError: the value does not fit; the message says what was expected, what came, and the nearest choice.

    Example:
        >>> convert(Value("1e-4", "run.yaml:1"), float), convert(Value("NO", "run.yaml:2"), str)
        (0.0001, 'NO')
    """
    members = _members(hint)
    if value.bare and bool not in members:
        raise ValueError(f"expected {describe(hint)} after the flag, got nothing")
    text = value.content if isinstance(value.content, str) else None
    if text in NULLS and not value.quoted and type(None) in members:
        return None
    choices = _choices(members)
    if text is not None and text in choices:
        return choices[text]
    if any(isinstance(member, type) and issubclass(member, enum.Enum) for member in members):
        members = tuple(member for member in members if member is not str)  # the enum lists all that is allowed
    order = (str,) if value.quoted and str in members else (bool, int, float, str, list, tuple, dict)
    for kind in order:
        for member in members:
            if (typing.get_origin(member) or member) is kind:
                done, result = _as_kind(value, kind, member)
                if done:
                    return result
    if Any in members:
        return untyped(value)
    raise ValueError(f"expected {describe(hint)}, got {_shape(value)}{nearest(text or '', choices)}")


def describe(hint: Any) -> str:
    """An annotation in words.

    Example:
        >>> describe(int | None), describe(Literal["raw", "adjusted"])
        ('a whole number or null', 'one of raw, adjusted')
    """
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        type(None): "null",
        Any: "any value",
    }
    members = _members(hint)
    choices = _choices(members)
    parts = (
        [f"one of {', '.join(choices)}" if len(choices) <= 12 else f"one of its {len(choices)} names"]
        if choices
        else []
    )
    for member in members:
        origin, inner = typing.get_origin(member), typing.get_args(member)
        if member in words and not (choices and member is str):
            parts.append(words[member])
        elif (origin or member) in (list, tuple):
            parts.append(f"a list of {describe(inner[0])}" if inner else "a list")
        elif (origin or member) is dict:
            parts.append("a mapping")
    parts.sort(key=lambda part: part == "null")
    return " or ".join(parts) or "something that cannot be written in a file"


def nearest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the known word that is most alike, or nothing.

    Example:
        >>> nearest("learning_rte", ["learning_rate", "seed"])
        "; did you mean 'learning_rate'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def write_yaml(values: Mapping[str, Any]) -> str:
    """A mapping as YAML that :func:`read_yaml` and :func:`convert` read back to the same values.

    Text that a YAML reader could take for something else is quoted.

    Example:
        >>> print(write_yaml({"seed": 7, "learning_rate": 1e-4, "answer": "NO", "system_prompt": None}), end="")
        seed: 7
        learning_rate: 0.0001
        answer: "NO"
        system_prompt: null
    """
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer with doubtful text in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text not in NULLS and text.lower() not in BOOLEANS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(tuple, lambda dumper, items: dumper.represent_list(list(items)))


def _from_node(node: yaml.Node, name: str, faults: list[str]) -> Value:
    where = f"{name}:{node.start_mark.line + 1}" if name else ""
    if isinstance(node, yaml.ScalarNode):
        return Value(node.value, where, quoted=node.style is not None)
    if isinstance(node, yaml.SequenceNode):
        return Value(tuple(_from_node(item, name, faults) for item in node.value), where)
    entries: dict[str, Value] = {}
    for key_node, value_node in node.value:
        line = f"{name}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            faults.append(f"{line}: a key must be plain text")
            continue
        key, entry = key_node.value, _from_node(value_node, name, faults)
        if key in entries:
            faults.append(f"{line}: the key {key!r} was already set at {entries[key].where}; keep one of them")
        entries[key] = Value(entry.content, line, entry.quoted)
    return Value(entries, where)


def _flag_value(word: str, where: str, faults: list[str]) -> Value:
    """One word of a flag; ``[...]``, ``{...}`` and quoted text are YAML, so that lists and "null" can be given."""
    if word[:1] in ("[", "{", '"', "'"):
        try:
            node = yaml.compose(word, Loader=yaml.SafeLoader)
            if node is None:
                raise AssertionError("a word that begins with a bracket or a quote is never an empty document")
            value = _from_node(node, where, faults)
        except yaml.YAMLError as error:
            faults.append(f"{where}: cannot read {word!r} ({getattr(error, 'problem', None) or error})")
            return Value(word, where, quoted=True)
        except RecursionError:
            faults.append(f"{where}: {_TOO_DEEP}")
            return Value("", where, quoted=True)
        return Value(value.content, where, value.quoted)
    return Value(word, where)


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, flat; a single one otherwise."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for member in typing.get_args(hint) for inner in _members(member))
    return (hint,)


def _choices(members: Iterable[Any]) -> dict[str, Any]:
    """What Literal and Enum members allow: the text as written, and the plain value it stands for."""
    allowed: dict[str, Any] = {}
    for member in members:
        if typing.get_origin(member) is Literal:
            allowed |= {str(item): item for item in typing.get_args(member) if not isinstance(item, bool)}
        elif isinstance(member, type) and issubclass(member, enum.Enum):
            allowed |= {str(item.value): item.value for item in member}
    return allowed


def _as_kind(value: Value, kind: type, member: Any) -> tuple[bool, Any]:
    """Whether the value can be of this kind, and the value as such."""
    content, inner = value.content, typing.get_args(member)
    if kind in (list, tuple):
        if isinstance(content, Mapping) or _is_null(value):
            return False, None
        items = content if isinstance(content, tuple) else (value,)
        return True, kind(convert(item, inner[0] if inner else Any) for item in items)
    if kind is dict:
        if not isinstance(content, Mapping):
            return False, None
        return True, {key: convert(item, inner[1] if inner else Any) for key, item in content.items()}
    if not isinstance(content, str):
        return False, None
    if kind is str:
        return not _is_null(value), content
    if kind is bool:
        return content.lower() in BOOLEANS, BOOLEANS.get(content.lower())
    number = _number(content)
    if number is None or (kind is int and number != int(number)):
        return False, None
    return True, kind(number)


def _is_null(value: Value) -> bool:
    """Whether this is null where null is not allowed; meant as text it needs quotes."""
    return isinstance(value.content, str) and value.content in NULLS and not value.quoted


def _number(text: str) -> int | float | None:
    """The finite number that a text writes in decimal, or None."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return None
    return int(text) if _INTEGER.fullmatch(text) else float(text)


def untyped(value: Value) -> Any:
    """A value that no annotation speaks for: null, true, false and numbers by their looks, else text.

    Example:
        >>> untyped(Value("1e-4", "")), untyped(Value("no", "")), untyped(Value("1", "", quoted=True))
        (0.0001, 'no', '1')
    """
    content = value.content
    if isinstance(content, tuple):
        return [untyped(item) for item in content]
    if isinstance(content, Mapping):
        return {key: untyped(item) for key, item in content.items()}
    if value.quoted:
        return content
    if _is_null(value):
        return None
    if content in ("true", "false"):
        return content == "true"
    number = _number(content)
    return content if number is None else number


def _shape(value: Value) -> str:
    if isinstance(value.content, str):
        return f"null (quote it if {value.content!r} is meant as text)" if _is_null(value) else repr(value.content)
    return "a mapping" if isinstance(value.content, Mapping) else f"a list of {len(value.content)}"
