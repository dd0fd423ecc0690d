"""A picture of a step as data in the page: columns of small numbers, compressed, that static/picture_data.js reads.

    {"duration", "ribbons": [...], "groups": [...], "levels": [{"finest", "row", "start", "duration", "name", "count",
    "self", "note"}], "names": [[name, kind, type, op], ...], "notes": [...], "links": {...}, "memory": [...]}

Times are nanoseconds; the `start` of a block is told as the difference to the block before it. A picture takes at most
`MOST_BYTES`: where it would take more, its finest level stays away.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from tfperf.base.units import counted, listed
from tfperf.report.render.page.table_data import LONGEST_NAME, JsonObject
from tfperf.report.render.values import brief, cell_text, measure_text
from tfperf.report.step_picture import Blocks, Ribbon, StepPicture

MOST_BYTES = 490_000
"""Three of them take less than 1.5 MB."""
_NAMED = 5


def picture_data(picture: StepPicture) -> JsonObject:
    """Return what the page draws."""
    levels = picture.levels
    packed = _packed(picture, levels)
    while len(packed) > MOST_BYTES and len(levels) > 1:
        levels = levels[:-1]
        packed = _packed(picture, levels)
    return {"kind": "picture", "packed": packed}


def picture_words(picture: StepPicture) -> str:
    """Return the picture in words; its table of categories stands beside it."""
    groups = [f"{group.title} ({counted(len(group.lanes) + group.omitted, 'lane')})" for group in picture.groups]
    more = f", and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    lanes = f"Lanes: {', '.join(groups[:_NAMED])}{more}." if groups else "No events."
    memory = f" Memory in use: {listed([curve.title for curve in picture.memory])}." if picture.memory else ""
    return " ".join([lanes + memory, *picture.remarks])


def picture_rows(picture: StepPicture) -> list[tuple[str, str, str]]:
    """Return the table of the step: each category that takes time, its time, and its share."""
    whole = max(picture.duration_ns, 1)
    rows = sorted(picture.categories.items(), key=lambda row: -row[1])
    return [
        (brief(title, LONGEST_NAME), f"{cell_text(ns / 1e6, 'ms')} ms", measure_text(100.0 * ns / whole, "%"))
        for title, ns in rows
        if ns
    ]


def _packed(picture: StepPicture, levels: Sequence[Blocks]) -> str:
    """Return base64 of gzip of JSON, with the names and notes that these levels have."""
    names, name_places = _used([level.name for level in levels])
    notes, note_places = _used([level.note for level in levels])
    links = picture.links
    data = {
        "duration": picture.duration_ns,
        "ribbons": [_ribbon(ribbon) for ribbon in picture.ribbons],
        "groups": [
            {
                "title": brief(group.title, LONGEST_NAME),
                "isOpen": group.is_open,
                "load": list(group.load),
                "omitted": group.omitted,
                "lanes": [
                    {"title": brief(lane.title, LONGEST_NAME), "rows": lane.rows, "busy": round(lane.busy_percent, 3)}
                    for lane in group.lanes
                ],
            }
            for group in picture.groups
        ],
        "levels": [_level(level, name_places, note_places) for level in levels],
        "names": [
            [brief(text, LONGEST_NAME) for text in (each.name, each.kind, each.type, each.op)]
            for each in (picture.names[number] for number in names)
        ],
        "notes": [brief(picture.notes[number], LONGEST_NAME) for number in notes],
        "links": {
            "kinds": list(links.kinds),
            "kind": links.kind.tolist(),
            "fromRow": links.from_row.tolist(),
            "from": links.from_ns.tolist(),
            "toRow": links.to_row.tolist(),
            "to": links.to_ns.tolist(),
        },
        "memory": [
            {
                "title": brief(curve.title, LONGEST_NAME),
                "times": curve.times_ns.tolist(),
                "values": curve.used_bytes.tolist(),
            }
            for curve in picture.memory
        ],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # With the time of packing in it, two pages of one report would differ.
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _used(columns: Sequence[Any]) -> tuple[list[int], Any]:
    """Return the numbers that occur, ascending, and for each number its place among them; -1 stays -1."""
    import numpy as np  # where there is no picture, a page is made without

    every = np.concatenate([*columns, np.zeros(0, np.int32)])
    occurs = np.bincount(every[every >= 0], minlength=1) > 0
    return np.flatnonzero(occurs).tolist(), np.append(np.cumsum(occurs) - 1, -1)


def _level(level: Blocks, name_places: Any, note_places: Any) -> JsonObject:
    import numpy as np

    columns = {
        "row": level.row,
        "start": np.diff(level.start_ns, prepend=0),
        "duration": level.duration_ns,
        "name": name_places[level.name],
        "count": level.count,
        "self": level.self_ns,
        "note": note_places[level.note],
    }
    return {"finest": level.finest_ns, **{key: column.tolist() for key, column in columns.items()}}


def _ribbon(ribbon: Ribbon) -> JsonObject:
    columns = {"category": ribbon.category, "start": ribbon.start_ns, "end": ribbon.end_ns}
    titles = [brief(title, LONGEST_NAME) for title in ribbon.titles]
    return {"title": ribbon.title, "titles": titles, **{key: column.tolist() for key, column in columns.items()}}
