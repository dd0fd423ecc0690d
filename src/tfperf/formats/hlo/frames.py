"""Stacks of source lines that a program holds once, and instructions name by a number."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.formats.hlo.model import Frame

_MOST_FRAMES = 64


class Frames:
    """The tables of a module. All of them count from 1, and 0 is nothing."""

    def __init__(
        self,
        files: Sequence[str] = (),
        functions: Sequence[str] = (),
        places: Sequence[tuple[int, int, int]] = (),
        frames: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`places` are file, function and line; `frames` are place and calling frame."""
        self._files, self._functions, self._places, self._frames = files, functions, places, frames
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._known: dict[int, Frame] = {}

    def stack(self, frame: int) -> tuple[Frame, ...]:
        """Return the places of a frame, the innermost first; none for a frame that is not there."""
        if frame not in self._stacks:
            found: list[Frame] = []
            at = frame
            for _ in range(_MOST_FRAMES):
                if not 0 < at <= len(self._frames):
                    break
                place, at = self._frames[at - 1]
                if 0 < place <= len(self._places):
                    if place not in self._known:
                        file, function, line = self._places[place - 1]
                        self._known[place] = Frame(_item(self._files, file), line, _item(self._functions, function))
                    found.append(self._known[place])
            self._stacks[frame] = tuple(found)
        return self._stacks[frame]


def _item(texts: Sequence[str], number: int) -> str:
    return texts[number - 1] if 0 < number <= len(texts) else ""
