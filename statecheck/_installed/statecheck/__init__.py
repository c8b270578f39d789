"""statecheck, for a Python that has this folder's parent on its import path and no other part of site-packages.

The environment of a release has its own torch; its import path gets the rooms of an installed statecheck, and with
them this module, in whose place the package itself is loaded.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_package = Path(__file__).resolve().parents[2]
_spec = spec_from_file_location(
    __name__, _package / "__init__.py", submodule_search_locations=[str(_package)]
)
assert _spec is not None
assert _spec.loader is not None
sys.modules[__name__] = module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
