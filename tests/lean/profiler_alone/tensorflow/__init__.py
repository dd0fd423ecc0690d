"""TensorFlow's own profiler without what it would record: `import tensorflow` imports nothing else.

The modules of the package are those of the TensorFlow that is installed. A profile has the steps that a script marks,
and no ops. That takes a quarter of the time.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

_here = str(Path(__file__).parents[1])
_installed = PathFinder.find_spec(__name__, [folder for folder in sys.path if folder != _here])
__path__ = list((_installed and _installed.submodule_search_locations) or ())
