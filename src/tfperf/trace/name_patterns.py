"""Names of ops that differ only in numbers, as one name: `*` stands for the numbers that differ."""

from __future__ import annotations

import re
from collections.abc import Collection

_BEHIND_A_WORD = r"(?<=layer|block|tower)s?(?:(?:_\._|[_/])?\d+)?"
_IN_A_LIST = r"(?<=_\.)_\d+"
_REPEATED = re.compile(rf"(?:{_BEHIND_A_WORD}|{_IN_A_LIST})(?=\)*/)", re.IGNORECASE)
"""The number at the end of a scope that a model repeats: `layer_17/`, `TransformerBlock_3/`, `layer/17/`, `h_._2/`.

It may lack a number: Keras calls the first three `encoder_layer`, `encoder_layer_1`, `encoder_layer_2`. Names such as
`dense_1` and `conv2d_2` are no such scopes: Keras numbers all layers of a class, whether they are alike or not.
"""
_REPLICA = re.compile(r"(?:^|(?<=/))replica_\d+/")
"""The scope of a replica of tf.distribute; the first has none."""


def starred(names: Collection[str], number: re.Pattern[str]) -> str:
    """Return the name that stands for several, which differ in nothing but what `number` finds in them."""
    differs = iter([len(set(found)) > 1 for found in zip(*map(number.findall, names), strict=True)])
    # The one with the most scopes and digits shows all that there is.
    longest = max(names, key=lambda name: (name.count("/"), len(name), name))
    return number.sub(lambda match: star(match) if next(differs) else match[0], longest)


def star(number: re.Match[str]) -> str:
    """Return `*` for the digits of what was found, with what stands before them: `_*`; the same where there is none."""
    before = number[0].rstrip("0123456789")
    return f"{before}_*" if before == number[0] else f"{before}*"


def pattern_of(op_name: str) -> str:
    """Return what the names of an op have in common in all replicas and repeated layers."""
    return _REPEATED.sub(star, _REPLICA.sub("", op_name))


def name_of_repeated(op_names: Collection[str]) -> str:
    """Return the name that stands for ops of one pattern: `replica_*/encoder/layer_*/MatMul`."""
    name = starred(op_names, _REPEATED)
    replicas = {scope and scope[0] for scope in map(_REPLICA.search, op_names)}
    return _REPLICA.sub("replica_*/", name) if len(replicas) > 1 else name
