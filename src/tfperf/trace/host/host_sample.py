"""A sample of the hosts of a run: some of each role, evenly spread over their names; always the same ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from tfperf.base.units import counted, natural
from tfperf.trace.logdir import Run

_NUMBER = re.compile(r"\d+")


def sample_hosts(run: Run, count: int) -> tuple[Run, str]:
    """Return the run with so many of its hosts, and a sentence about them.

    If it has no more, that is the run as it is, and no sentence. A role is what hosts share whose names differ in
    numbers only, such as `worker-3` and `worker-12`. Each has a share of the sample as of the run, but at least one
    host. If there are more roles than that allows, all hosts are one.
    """
    if count >= len(run.files):
        return run, ""
    roles: dict[str, list[int]] = {}
    for position in sorted(range(len(run.files)), key=lambda position: natural(run.files[position].host)):
        roles.setdefault(_NUMBER.sub("*", run.files[position].host), []).append(position)
    if len(roles) > count:
        roles = {"": [position for positions in roles.values() for position in positions]}
    shares = dict(zip(roles, _shares([len(positions) for positions in roles.values()], count), strict=True))
    kept = {
        positions[(2 * place + 1) * len(positions) // (2 * shares[role])]
        for role, positions in roles.items()
        for place in range(shares[role])
    }
    drawn = f"A sample of {count:,} of {counted(len(run.files), 'host')}, evenly spread over their names"
    of_roles = ", ".join(f"{share:,} of {len(roles[role]):,} {role}" for role, share in shares.items())
    files = tuple(file for position, file in enumerate(run.files) if position in kept)
    return replace(run, files=files), f"{drawn}: {of_roles}." if len(roles) > 1 else f"{drawn}."


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """Divide a sample as the sizes are, with at least one for each: by the largest remainders."""
    whole, rest = sum(sizes) - len(sizes), count - len(sizes)
    shares = [divmod(rest * (size - 1), whole) for size in sizes]
    left = rest - sum(share for share, _ in shares)
    largest = sorted(range(len(sizes)), key=lambda role: (-shares[role][1], role))[:left]
    return [1 + share + (role in largest) for role, (share, _) in enumerate(shares)]
