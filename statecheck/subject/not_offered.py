"""What an adapter finds of a release, and how it says that a subject does not have what a call needs."""

import importlib
import importlib.metadata
import re
import sys
from typing import Any


class NotOffered(Exception):
    """The subject does not offer what the call needs, which is no failure.

    Only this class says so: an exception of the subject's own that has the same name is a failure like any other.
    """


class NotVerified(NotOffered):
    """A model of a library cannot be verified: a fresh run of it fails, or its weights hide the state.

    Nothing can be said of it, and a verdict names it.
    """


def version_of(package: str) -> tuple[int, ...]:
    """The numbers of the release; those of a checkout that was never built are 999."""
    try:
        found = re.match(r"\d+(\.\d+)*", importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return tuple(map(int, found[0].split("."))) if found else (999,)


def first_offered(*places: str) -> Any:
    """What the first of `places`, each a module and a name as `a.b:name`, leads to.

    Raises:
        NotOffered: none of them exists in this release.
    """
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = sys.modules.get(module) or importlib.import_module(module)
        except ModuleNotFoundError as error:
            # That a package is missing which the release needs does not mean that the release lacks the name.
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        if hasattr(found, name):
            return getattr(found, name)
    raise NotOffered(f"none of {', '.join(places)}")
