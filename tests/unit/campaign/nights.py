"""Campaigns that the command nightly runs with pretended workers."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecheck.campaign.record import FILE, BucketRecord, CampaignRecord, PropertyRecord
from statecheck.cli import campaign as cli_campaign
from statecheck.cli import main as cli
from tests.helpers.modules import module
from tests.unit.campaign.pretended import COMMIT

SURROUNDINGS = "SHARD CAMPAIGN"
"""Variables of the shell that runs these tests, which are about none of them."""
DIVIDES = """
import os
import time

import impl
from impl import *


def divide(x, y):
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    right = impl.divide(x, y)
    return right + 1 if x >= 12 and "TOY_BROKEN" in os.environ else right
"""


@dataclass(frozen=True)
class Night:
    """A campaign that was run from the command line."""

    code: int
    output: str
    id: str
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "reports" / "campaigns" / self.id

    @property
    def record(self) -> CampaignRecord:
        return CampaignRecord.load(self.home / FILE)

    @property
    def bucket(self) -> BucketRecord:
        (found,) = self.record.buckets
        return found

    @property
    def page(self) -> str:
        return (self.home / "report.html").read_text(encoding="utf-8")

    def of(self, name: str) -> PropertyRecord:
        (found,) = (row for row in self.record.properties if row.id == name)
        return found


def night(folder: Path, name: str, *options: str, source: str = DIVIDES, **variables: str) -> Night:
    """Run `nightly` in this process, with one worker of its own, on a subject made of `source`."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for variable in (*SURROUNDINGS.split(), "TOY_BROKEN", "TOY_SECONDS"):
            patch.delenv(variable, raising=False)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        patch.setattr(cli_campaign, "commit_of", lambda root: COMMIT)
        with module(folder, "toy_of_nights", source) as subject:
            code = cli.main([*arguments(folder, name, subject), *options])
    return Night(code, printed.getvalue(), name, folder)


def arguments(folder: Path, name: str, subject: str) -> list[str]:
    found = ["nightly", "--device", "cpu", "--workers", "1", "--id", name, "--subject", subject]
    return [*found, "--reports", str(folder / "reports"), "--corpus", str(folder / "corpus")]


"""A subject that is right, or wrong, as slow as a variable says."""
