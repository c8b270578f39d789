"""Situations of prefixes."""

from oracle.lifecycle.prefixes import Prefixes
from oracle.rules import watches
from oracle.situations.registry import situations_of

BEFORE_FIRST = situations_of("lifecycle.prefixes")("a conv window reaches before the request's first token")


@watches(Prefixes.last)
def _window(_: object, owner: Prefixes, prefix: int, count: int) -> None:
    BEFORE_FIRST.reached_if(0 < owner.length(prefix) < count)
