"""What a campaign is asked to do, as data that can be sent to another machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statecheck.util import limits

ENGINE = f"{__package__}.worker:main"
"""What a process that searches runs."""


@dataclass(frozen=True)
class Plan:
    """One shard of a campaign.

    Args:
        id: the campaign's name.
        device: "cpu" or "cuda".
        gpus: indices of the GPUs to use, empty on a CPU.
        engines: processes that search, in all.
        budget: seconds, or None where `examples` alone says how much work it is.
        commit: of the repository, see `CampaignRecord`.
        shard: which of `shards` parts this is, counted from 0.
        first_round: where rounds go on that another campaign of the same commit has begun.
        reports: folder in which the campaign's folder is made.
        corpus: folder of the cases that are replayed first.
        kept: folder of the cases that fail in this campaign; "" for the corpus.
        seed: from which the random choices follow, None where they follow from the commit.
        as_new: what the subject declares as known is taken for new.
        require: functions without which the campaign does not begin.
        fail_on_untested: an applicable property that is not tested is a failure.
        exit_first: it ends when the first failure has its report.
        profile: a conformance profile, whose properties get a fixed number of examples each; "" for none.
        xfails: a file of defects that are declared besides those of the subject, "" for none.
        tolerates_fixed: a declared defect that no longer fails is reported, and is no failure.
        exhaustive: all inputs up to a bound in place of drawn ones, of the properties that have enumerations.
        isolated: the subject runs in a process that can be killed, and that has `time_limit` seconds for each call. Where it is
            None, this is so on every device but the CPU.
        sanitized: on a CPU, the sanitizer watches; it always does in a process of its own.
    """

    id: str
    subject: str = "impl"
    only: str = ""
    device: str = "cpu"
    gpus: tuple[str, ...] = ()
    engines: int = 1
    budget: float | None = None
    examples: int | None = None
    commit: str = ""
    shard: int = 0
    shards: int = 1
    first_round: int = 0
    reports: str = "reports"
    corpus: str = "corpus"
    kept: str = ""
    seed: int | None = None
    as_new: bool = False
    require: tuple[str, ...] = ()
    fail_on_untested: bool = False
    exit_first: bool = False
    profile: str = ""
    xfails: str = ""
    tolerates_fixed: bool = False
    exhaustive: bool = False
    isolated: bool | None = None
    time_limit: float = limits.CALL
    sanitized: bool = True
    canary: bool = True
    replayed: bool = True

    @property
    def is_selective(self) -> bool:
        """Whether it is about some of the properties, whatever the subject offers."""
        return bool(self.only or self.profile) or self.exhaustive

    @property
    def in_worker(self) -> bool:
        """Whether the subject runs in a process that can be killed."""
        return self.device != "cpu" if self.isolated is None else self.isolated

    @property
    def keeps_in(self) -> str:
        """The folder of the cases that fail in this campaign."""
        return self.kept or self.corpus

    @property
    def name(self) -> str:
        """Of the campaign's folder."""
        return self.id if self.shards == 1 else f"{self.id}-shard{self.shard + 1}of{self.shards}"

    @property
    def folder(self) -> Path:
        """The campaign's own."""
        return Path(self.reports) / "campaigns" / self.name


def shard_name(shard: int, shards: int) -> str:
    """A shard as `--shard` names it: "2/8" is the second of eight, whose number in plans and records is 1."""
    return f"{shard + 1}/{shards}"


def shard_of(environment: Mapping[str, str], option: str = "") -> tuple[int, int]:
    """The shard that a job does, counted from 0, and the number of shards: (0, 1) is the whole campaign.

    Args:
        option: "2/8" for the second of eight shards, "" for what the variable SHARD says in the same form.

    Raises:
        ValueError: not of that form.
    """
    name, text = ("shard", option) if option else ("SHARD", environment.get("SHARD", "").strip() or "1/1")
    form = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        rule = "a shard and the number of shards, such as 2/8 for the second of eight"
        raise ValueError(f"{name} = {text!r}, but should be {rule} [shard_of]")
    return int(form[1]) - 1, int(form[2])


def seed_of(plan: Plan, round_number: int, name: str = "") -> int:
    """The seed of a round, or of a property in it: 48 bits.

    They depend on the plan's seed, or else the commit, and on shard, round and name alone.
    """
    origin = plan.commit.rstrip("+") if plan.seed is None else plan.seed
    # Another tuple would give other seeds, and a profile of `conform` with other seeds is another version of it.
    what = (origin, plan.shard, plan.shards, 0, round_number, name)
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:6], "big")
