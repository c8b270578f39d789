"""What is set in a worker's process before it does anything, for all of its life."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statecheck.campaign.processes.tasks import Setting

if TYPE_CHECKING:
    from statecheck.execution.registry import Property


def prepare_process(setting: Setting) -> None:
    """What has to be set before anything is imported that looks at it, and holds for the process."""
    if setting.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = setting.gpu
    import torch

    from statecheck.execution import profiles
    from statecheck.kernels import triton_mode

    torch.set_num_threads(1)
    profiles.load("nightly")
    triton_mode.prepare(setting.device)


def properties_of(setting: Setting) -> dict[str, Property]:
    """All properties; a state machine's steps are those of the campaign, of which a process has one."""
    from statecheck.execution.registry import load_properties

    found = load_properties()
    for tested in found.values():
        machine = getattr(tested, "machine", None)
        if machine is not None and setting.steps is not None:
            # An attribute of the class, for all of the process: a worker belongs to one campaign, which has one number.
            machine.steps = setting.steps
    return found
