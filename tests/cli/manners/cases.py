r"""One table: what is typed, and what a person sees first.

A row is (what is typed, first line, exit code). In front of the command stand variables, as in a shell. The first line
is that of stdout, or if that is empty the error's, or else that of stderr; `*` in it stands for any text. In a
terminal, where `CLEAR` and others are codes for colours, a row is a line of bash, and may have keys to press.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from tfperf import __version__
from tfperf.cli import main

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class Case(NamedTuple):
    """A row; `keys` are pressed when `waits_for` is on the screen."""

    typed: str
    first: str
    code: int = 0
    waits_for: str = ""
    keys: str = ""
    columns: int = 80


RUN = "2026_11_21_12_00_00"
USAGE = "Usage: tfperf"

IN_PROCESS = (
    # tfperf itself
    Case("", f"{USAGE} [OPTIONS] COMMAND [ARGS]...", 2),
    Case("--help", f"{USAGE} [OPTIONS] COMMAND [ARGS]..."),
    Case("-V", f"tfperf, version {__version__}"),
    Case("-q", "Error: Missing command.", 2),
    Case("--verison", "Error: No such option*--verison*Did you mean*--version*", 2),
    # wrong commands
    Case("analyse logs", "Error: no such command 'analyse': did you mean analyze?", 2),
    Case("ANALYZE logs", "Error: no such command 'ANALYZE': did you mean analyze?", 2),
    Case("export logs", "Error: no such command 'export': did you mean export-csv or export-parquet?", 2),
    Case("explian", "Error: no such command 'explian': did you mean explain*?", 2),
    Case("xyzzy", "Error: no such command 'xyzzy': choose one of run, capture, *", 2),
    Case("logs", "Error: 'logs' is not a command; *: tfperf analyze logs", 2),
    Case("'\x1b[31m'", r"Error: no such command '\x1b[31m': *", 2),
    *(Case(f"{name} --help", f"{USAGE} {name} [OPTIONS]*") for name in main.list_commands(click.Context(main))),
    Case("doctor -h", f"{USAGE} doctor [OPTIONS]"),
    # colour
    Case("analyze logs", f"{RUN}  sample"),
    Case("analyze logs --color always", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("--color always analyze logs", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("--color always analyze logs --color never", f"{RUN}  sample"),
    Case("--color never analyze logs --color always", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("analyze logs --color sometimes", "Error: Invalid value for '--color': 'sometimes' is not one of *", 2),
    Case("FORCE_COLOR=1 analyze logs", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("FORCE_COLOR=1 analyze logs -o -", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("FORCE_COLOR=1 analyze logs --format json", "{"),
    Case("FORCE_COLOR=1 check logs --max-step-time 1s", "\x1b[1;32mPASS. The limit passed.\x1b[0m"),
    Case("diff logs fixed --color always", "\x1b[1;32m3.07x faster *\x1b[0m"),
    Case("explain retrace --color always", f"{BOLD}retrace{PLAIN}{DIM} (flag){PLAIN}"),
    # width
    Case("COLUMNS=60 analyze logs", f"{RUN}  sample"),
    Case("COLUMNS=50 explain", "Kind                 Words  Examples"),
    # analyze: what is shown
    Case("analyze logs -q", f"{RUN}  sample"),
    Case("analyze logs --no-pager", f"{RUN}  sample"),
    Case("analyze logs --full", f"Run     {RUN}"),
    Case("analyze logs -s steps", f"Run     {RUN}"),
    Case("analyze logs --list", "Folder  logs"),
    Case("analyze logs/plugins/profile/*", f"{RUN}  sample"),
    # analyze: wrong words
    Case("analyze logs -s overveiw", "Error: *'overveiw' is not a section: did you mean overview?", 2),
    Case("analyze logs -s ops,steps", "Error: *'ops,steps' *: use -s ops -s steps", 2),
    Case("explain TPU-CV", "Error: unknown term 'TPU-CV': did you mean TPU-CV-*", 2),
    Case("analyze logs -s xyzzy", "Error: *'xyzzy' is not a section: choose one of diagnosis, *", 2),
    Case("analyze logs --fromat json", "Error: No such option*--fromat*Did you mean*--format*", 2),
    Case("analyze logs --format jsn", "Error: *'jsn' is not one of *'json'*", 2),
    Case("analyze logs --top 0", "Error: Invalid value for '--top': 0 is not in the range x>=1.", 2),
    Case("analyze logs --filter '(' -s ops", "Error: *'(' is not a regular expression: *", 2),
    Case("analyze logs --filter x", "Error: --by and --filter apply only to ops*", 2),
    Case("analyze logs --full -s steps", "Error: --full cannot be used with -s", 2),
    Case("analyze logs --by layer", "Error: --by and --filter apply only to ops*-s ops, -s kernels or --full", 2),
    Case("analyze logs --run nope", f"Error: no run is named 'nope'*{RUN}*", 1),
    Case("analyze logs --host nope", f"Error: run {RUN} has no host named 'nope'*: sample*", 1),
    Case(
        "analyze logs --attribution tensorflow --step-marker x",
        "Error: --step-marker cannot be used with --attribution *",
        2,
    ),
    Case("analyze logs --skip-first 2", "Error: --skip-first applies only to *: add --save-baseline FILE", 2),
    Case("analyze logs more", "Error: Got unexpected extra argument*more*", 2),
    # odd paths and files
    Case("analyze empty", "Error: no *.xplane.pb file below empty; *", 1),
    Case("analyze", f"{RUN}  sample"),
    Case("analyze /", "Error: *: / is a file system root, *", 2),
    Case("analyze memory://bucket/logs", "Error: memory://bucket/logs does not exist; *", 1),
    Case("analyze s3:///", "Error: *: s3:// has no bucket: use s3://BUCKET/LOGDIR", 2),
    Case("analyze s3://me:hunter2@bucket/logs", "Error: *: s3://***@bucket/logs includes a password, *", 2),
    Case("analyze dbfs://bucket/logs", "Error: dbfs://bucket/logs has the unknown scheme dbfs; *", 1),
    Case("analyze logs -o https://host/r.html", "Error: cannot write https://host/r.html: *read-only; *", 1),
    Case("analyze events", "Error: *events.out.tfevents.1 is a TensorBoard event file, *", 1),
    Case("analyze text.xplane.pb", "Error: text.xplane.pb is a text file, *", 1),
    # -o
    Case("analyze logs -o old.txt", "Error: old.txt exists; pass --force to replace it", 1),
    Case("analyze logs -o missing/x.txt", "Error: cannot write missing/x.txt: missing does not exist; *", 1),
    Case("analyze logs -o empty", "Error: empty is a folder; pass a file", 1),
    Case("analyze logs --save-baseline old.txt", "Error: old.txt exists; pass --force to replace it", 1),
    Case("analyze logs --open --format json", "Error: --open requires an HTML report: omit --format, *", 2),
    Case("analyze logs -o new.pdf", "Error: new.pdf: unknown suffix .pdf; use .txt, *", 2),
    Case("analyze logs -q -o quiet.html", ""),
    Case("analyze logs -q --color always -o quiet.txt", ""),
    # check
    Case("check logs --max-input-bound 90%", "PASS. The limit passed."),
    Case("check logs --max-input-bound 10%", "FAIL: max-input-bound 10%. *", 3),
    Case("-q check logs --max-input-bound 10%", "FAIL: max-input-bound 10%. *", 3),
    Case("check logs --max-step-time 1s --min-steps 500", "UNKNOWN: max-step-time 1s. *", 1),
    Case("check logs", "Error: no limits given: *", 2),
    Case("check logs --fail-on compilaton", "Error: *unknown cause 'compilaton': did you mean compilation?", 2),
    Case("check logs --limit 'step_tme < 5ms'", "Error: *unknown figure step_tme: did you mean step_time?", 2),
    Case("check logs --config bad.toml", "Error: bad.toml: unknown key 'max-inputbound' in check: did you mean *", 2),
    Case("check logs --config nowhere.toml", "Error: nowhere.toml does not exist", 2),
    Case("check logs --max-step-time 1s --junit -", "Error: --junit - would mix with the report: pass a file", 2),
    Case("check logs --baseline text.xplane.pb", "Error: *text.xplane.pb*", 1),
    # diff
    Case("diff logs fixed", "3.07x faster *"),
    Case("diff both", "3.07x faster *"),
    Case("diff logs", "Error: pass at least two runs: tfperf diff BEFORE AFTER", 2),
    Case("diff logs fixed --stat avg", "Error: *'avg' is not one of 'mean', 'median', 'p95'.", 2),
    # export-csv
    Case("export-csv -q logs -o tables2", ""),
    Case("export-csv logs", f"wrote * to {RUN}-csv: *"),
    Case("export-csv logs -o old.txt", "Error: old.txt is a file; pass a folder", 1),
    # export-parquet
    Case("export-parquet logs -o old.txt", "Error: old.txt exists, but is not a tfperf dataset*", 1),
    # timeline
    Case("timeline logs -q -o t.json", ""),
    Case("timeline logs -o t.txt", "Error: t.txt: end the file name in *", 2),
    Case("timeline logs", "Error: no output given: pass a file with -o, *", 2),
    Case("timeline logs -o u.json --steps 5..3", "Error: *'5..3' ends before it starts: use 3..5", 2),
    Case("timeline logs -o u.json --steps 1000..2000", "Error: steps 1000..2000 do not exist; the steps are 0..19", 1),
    Case("timeline logs -o u.json --min-duration 5", "Error: *'5' has no unit: use 5s or 5ms", 2),
    # flamegraph
    Case("flamegraph logs -q -o f.svg", ""),
    Case("flamegraph logs", "Error: no output given: pass a file with -o, *", 2),
    Case("flamegraph logs -o f.pdf", "Error: f.pdf: end the file name in *", 2),
    Case("flamegraph logs -o old.txt --format svg", "Error: old.txt exists; pass --force to replace it", 1),
    Case("flamegraph logs -o g.svg --by scop", "Error: *'scop' is not one of *'scope'*", 2),
    Case("flamegraph logs -o g.svg --diff nowhere", "Error: nowhere does not exist; *", 1),
    # tfprof
    Case("anonymize nowhere -o copy", "Error: *nowhere*", 1),
    Case("tfprof graph logs", "Error: a profile has no graph, *", 2),
    Case("tfprof scope", "Error: no graph given: pass one with --graph, or a profile with --profile", 2),
    Case("tfprof scopes logs", "Error: *", 2),
    Case("tfprof params nowhere.keras", "Error: *nowhere.keras*", 2),
    # query
    Case("query logs 'select name from events' --top 1 --format csv", "name"),
    Case("query -f old.txt", "Error: no profile given: tfperf query PATH SQL", 2),
    Case("query logs 'drop table events'", "Error: DROP is not allowed, *", 2),
    Case("query logs -", "Error: the query is empty: *", 2),
    Case("query 'select 1'", "Error: select 1 was read as PATH: pass the profile first, tfperf query PATH SQL", 2),
    Case("query logs", "Error: pass exactly one of: a query, -f FILE, --schema", 2),
    # doctor, capture, run
    Case("doctor --worker nope", "Error: 'nope' is not the address of a profiler server; *", 2),
    Case("doctor --port 1 --worker a:1", "Error: select one job *", 2),
    Case("top --port 1", "Error: the live view requires a terminal; use --once *, or --format jsonl", 2),
    Case("top --port 1 --once", "Error: no server listens on localhost:1; *", 1),
    Case("top --port 1 --format jsonl --samples 1", '{"format": 1, "time": *"reason": "not_listening"*', 1),
    Case("capture --port 1 --worker localhost:1", "Error: workers are listed twice; *: localhost:1", 2),
    Case("capture --port 1 --duration 2", "Error: *'2' has no unit: use 2s or 2ms", 2),
    Case("capture --port 1 --on-slow-step 5ms", "Error: --on-slow-step requires --continuous", 2),
    Case("capture -q --port 1 --retries 1", "Error: no server listens on localhost:1; *", 1),
    Case("run", "Error: Missing argument 'SCRIPT [ARGS]...'.", 2),
    Case("run nowhere.py", "Error: nowhere.py does not exist; *", 2),
    Case("run --logdr quick quick.py", "Error: no such option --logdr: did you mean --logdir*", 2),
    Case("run --epochs 3 quick.py", "Error: no such option --epochs: *Put options of the script after its name", 2),
    Case("run logs", "Error: logs is a folder without __main__.py; pass a script, or -m and a module", 2),
    Case("run --logdir old.txt quick.py", "Error: *old.txt is a file; pass a folder for the traces", 1),
    Case("run -o missing/x.txt quick.py", "Error: cannot write missing/x.txt: missing does not exist; *", 1),
    Case("run --steps 1..2 --after 3s train.py", "Error: --steps cannot be used with --after: *", 2),
    # explain, completion
    Case("explain", "Kind                 Words  Examples"),
    Case("explain all others", "all others (term)"),
    Case("explain keep_signature", "keep_signature (action)"),
    Case("explain inptu_wait", "Error: unknown term 'inptu_wait': did you mean Input wait*", 2),
    Case("explain xyzzy", "Error: unknown term 'xyzzy': tfperf explain lists all kinds of terms", 2),
    Case("completion bash", "_tfperf_completion() {"),
    Case("completion tcsh", "Error: *'tcsh' is not one of 'bash', 'zsh', 'fish'.", 2),
)

_LONG = "tfperf analyze logs --full"
_ENDLESS = "tfperf query logs 'select count(*) from range(1000000000000) where range % 7 = 3'"
IN_TERMINAL = (
    Case("tfperf analyze logs", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("NO_COLOR=1 tfperf analyze logs", f"{RUN}  sample"),
    Case("tfperf --color never analyze logs", f"{RUN}  sample"),
    Case("tfperf analyze logs | cat", f"{RUN}  sample"),
    Case("PYTHONIOENCODING=ascii tfperf analyze logs", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("tfperf check logs --max-input-bound 10%", "\x1b[1;31mFAIL: max-input-bound 10%. *", 3),
    # the pager
    Case(f"PAGER='./pager A' {_LONG}", "pager A got Run*"),
    Case(f"PAGER='./pager B' {_LONG} | head -1", f"Run     {RUN}"),
    Case(f"PAGER='./pager C' {_LONG} --no-pager", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case(f"PAGER='./pager D' tfperf --no-pager {_LONG.removeprefix('tfperf ')}", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case(f"PAGER='./pager H' {_LONG} < /dev/null", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case("PAGER='./pager I' tfperf explain input_copy", f"{BOLD}input_copy{PLAIN}{DIM} (cause){PLAIN}"),
    Case("PAGER='./pager J' tfperf explain columns", "pager J got*"),
    Case(f"PAGER= {_LONG}", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case(f"PAGER=no-such-pager {_LONG}", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case(f"PAGER='head -n 1' {_LONG}", f"Run     {BOLD}{RUN}{PLAIN}"),
    Case("PAGER='head -n 1' tfperf check logs --max-input-bound 10% --format json", "{", 3),
    Case(f"PAGER=less {_LONG}", f"*Run     {BOLD}{RUN}{PLAIN}*", waits_for="Diagnosis", keys="q"),
    Case("LINES=9 PAGER='./pager K' python show.py show", "pager K got*"),
    Case("LINES=9 PAGER='./pager L' python show.py show_surely", f"{DIM}{RUN}  sample{PLAIN}"),
    Case("tfperf run quick.py", "the script", 1),
    # pipes that close, and Ctrl-C
    Case(f"{_LONG} 2>&1 | head -1", f"Run     {RUN}"),
    Case("tfperf --help | head -1", "Usage: tfperf [OPTIONS] COMMAND [ARGS]..."),
    Case(f"echo go; {_ENDLESS}", "go", 130, waits_for="go", keys="\x03"),
    Case("echo go; tfperf query logs -", "go", 130, waits_for="go", keys="\x03"),
    # narrow windows
    Case("tfperf analyze logs --color never", f"{RUN}  sample", columns=60),
    Case("tfperf explain --color never", "Kind                 Words  Examples", columns=60),
)
