"""Situations of states that are sent between engines of unequal numbers of ranks."""

from collections.abc import Mapping

from oracle.shards import layouts_of, sent_states, units_of_rank
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("shards")

GATHERED = _declare("a rank gets its state from several ranks")
SCATTERED = _declare("several ranks get their states from one rank")
EQUAL = _declare("as many ranks send a state as get it")
SHARED_UNIT = _declare("ranks share a head or a group, as there are more ranks")
SHARED_IN_ONE = _declare("a group is shared by ranks of one engine, and has a rank of its own in the other")


@watches(sent_states)
def _sent(_: object, family: str, sizes: Mapping[str, int], source_tp: int, target_tp: int) -> None:
    GATHERED.reached_if(source_tp > target_tp)
    SCATTERED.reached_if(source_tp < target_tp)
    EQUAL.reached_if(source_tp == target_tp)
    units = {part.units for layout in layouts_of(family, sizes) for part in layout.parts}
    SHARED_IN_ONE.reached_if(any((count % source_tp > 0) != (count % target_tp > 0) for count in units))


@watches(units_of_rank)
def _held(_: range, units: int, tp_size: int) -> None:
    SHARED_UNIT.reached_if(units % tp_size)
