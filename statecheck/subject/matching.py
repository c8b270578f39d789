"""Which declared defect a failing case shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.raised import error_text, from_outside
from statecheck.subject.deviation import KnownDeviation, Symptom

_Key = tuple[str, str, str, str, str, str]
_Candidate = tuple[KnownDeviation, tuple[Symptom, ...]]


class KnownDefectIndex:
    """Declared defects by the fields of a failure. Only conditions, which see the whole case, are asked for every case.

    A condition is the code of the declaration's author. A case for which it raises does not show its defect, so that it is reported
    as a new one; `errors` has a sentence for each declaration whose condition raised.

    Args:
        declared: in the order in which they are asked.
        profile: the rules of the subject's release, for conditions.
    """

    def __init__(self, declared: Sequence[KnownDeviation], profile: Profile) -> None:
        self.declared = declared
        self.errors: dict[str, str] = {}
        self._profile = profile
        self._candidates: dict[_Key, tuple[_Candidate, ...]] = {}

    def find(self, case: Case) -> KnownDeviation | None:
        """The first declared defect that the case shows; None where there is none. Raises nothing that a condition raises."""
        fitting = self._fitting(case)
        return next((one for one, symptoms in fitting if self._accepts(one, case, symptoms)), None)

    def nearest(self, case: Case) -> str:
        """A sentence about the first declared defect from which a new failure differs in one field alone, such as by a slip in the place; or "".

        Its condition holds for the case: a defect of other inputs or of another model is none that the failure is near to.
        """
        near = (pair for one in self.declared for pair in self._almost(one, case))
        return next((said for one, symptom, said in near if self._accepts(one, case, (symptom,))), "")

    def _almost(self, one: KnownDeviation, case: Case) -> Iterator[tuple[KnownDeviation, Symptom, str]]:
        """Its symptoms from which the failure differs in one field, each with the sentence."""
        failure = case.failure
        # Where all fields of a symptom are the failure's, a condition keeps it from matching.
        if failure is None or not one.covers(case.property_name, case.property_id) or one.fitting(case):
            return
        for symptom in one.shown_by:
            different = symptom.only_difference(failure)
            if different is not None:
                field, declared, seen = different
                name = one.id or one.alone or one.link
                yield (
                    one,
                    symptom,
                    f"Known defect {name} is declared for {field} = {declared!r}. This failure has {field} = {seen!r}, and differs in nothing else.",
                )

    def _fitting(self, case: Case) -> tuple[_Candidate, ...]:
        """The defects whose names and places are those of the case: the same for all cases with its fields."""
        failure = case.failure
        if failure is None:
            return ()
        key = (
            case.property_name,
            case.property_id,
            failure.kind,
            failure.function,
            failure.part,
            failure.exception,
        )
        if key not in self._candidates:
            pairs = ((one, one.fitting(case)) for one in self.declared)
            self._candidates[key] = tuple(pair for pair in pairs if pair[1])
        return self._candidates[key]

    def _accepts(self, one: KnownDeviation, case: Case, symptoms: tuple[Symptom, ...]) -> bool:
        try:
            return one.accepts(case, self._profile, symptoms)
        except BaseException as error:
            if from_outside(error):
                raise
            name = one.id or one.alone or one.link
            message = f"a condition of known defect {name} raised {error_text(error)}: the case counts as new"
            self.errors.setdefault(name, message)
            return False
