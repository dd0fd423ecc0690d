"""docs/tutorial.md: its job is trained, its commands are typed, its change is made, and the outcome is what it says.

The outputs on the page are of a real run. Numbers differ with each machine and each run, so what is compared is what
must be the same everywhere: `SIGNS`. `python tests/test_tutorial.py` runs the tutorial and writes its outputs anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from job_environment import WITHOUT_PANDAS, job_environment, needs_tensorflow
from places import ROOT
from test_docs import follow, shell

PAGE = ROOT / "docs" / "tutorial.md"
SIGNS = (
    "HIGHLY input-bound",
    "!! Waiting for input takes",  # Where little is waited for, as on a busy machine, the mark is another.
    ".cache()",
    "The pipeline is too slow",
    "numpy_function",
    "x faster (",
    "ms per step",
    "ms before",
    "Waiting for input",
    "PASS. The limit passed.",
    "FAIL: max-regression 10%",
    "exit code 3",
)
SHORTER = {"time.sleep(0.02)": "time.sleep(0.006)", "(64, 64, 3)": "(32, 32, 3)"}
"""The storage of the page takes 20 ms; here it takes less, for smaller photos, and is still what steps wait for."""
_ATTEMPTS = 3
_BLOCK = re.compile(r"^```(py|console|diff)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def followed(folder: Path, change_script: Callable[[str], str] = str) -> Iterator[tuple[str, str, str]]:
    """Do what the page says; yield the commands, the output that the page shows, and the real one."""
    for language, block, shown in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "py":
            (folder / "train.py").write_text(change_script(block))
        elif language == "diff":
            change(folder / "train.py", block)
        else:
            yield block, shown, typed(block, folder)


def change(path: Path, difference: str) -> None:
    """Replace the lines that begin with `-` by those that begin with `+`."""
    before, after = (
        "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] == mark) for mark in ("-", "+")
    )
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def typed(commands: str, folder: Path) -> str:
    """Return what the commands print to stdout; each must end with exit code 0. Those without a job need no process."""
    if commands.startswith("tfperf run "):
        variables = {key: value for key, value in job_environment(WITHOUT_PANDAS, keras=True).items() if key != "PATH"}
        done = shell(commands, folder, **variables)
        code, stdout, stderr = done.returncode, done.stdout, done.stderr
    else:
        code, stdout, stderr = follow(commands, folder)
    assert code == 0, stdout + stderr
    return stdout


def signs(text: str) -> list[str]:
    """Return what a reader is told in an output, on any machine; line breaks do not count."""
    unbroken = " ".join(text.split())
    return [sign for sign in SIGNS if sign in unbroken]


@needs_tensorflow
def test_the_tutorial_comes_out_as_it_says(tmp_path: Path) -> None:
    """On a loaded machine, real jobs may have other verdicts: one of three times is enough."""
    for attempt in range(_ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        try:
            follow_in(folder)
        except AssertionError:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return


def follow_in(folder: Path) -> None:
    def shorter(script: str) -> str:
        for long, short in SHORTER.items():
            assert long in script
            script = script.replace(long, short)
        return script

    told = set()
    for commands, shown, real in followed(folder, shorter):
        cut = not shown or shown.endswith("...\n")
        missing = set(signs(shown)) - set(signs(real))
        assert not missing, f"{commands}{missing} missing in:\n{real}"
        assert cut or signs(real) == signs(shown), f"{commands}{real}"
        told.update(signs(shown))
    assert told == set(SIGNS)


def main() -> None:
    """Run the tutorial, and write its outputs into the page; those that end with `...` keep their number of lines."""
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        for commands, shown, real in followed(Path(name)):
            if not shown:
                continue
            kept = real.splitlines(keepends=True)[: len(shown.splitlines()) - 1] if shown.endswith("...\n") else [real]
            ending = "...\n" if shown.endswith("...\n") else ""
            page = page.replace(
                f"{commands}```\n\n```text\n{shown}", f"{commands}```\n\n```text\n{''.join(kept)}{ending}"
            )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
