"""Which situations the rules were asked in, observed from outside: a module for each topic of the rules.

Each declares its situations and says, of what a rule was asked and what it answered, which of them came up. Once this
package is imported, they are noted wherever the rules are asked.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
