"""What is set in a worker's process before it does anything, for all of its life."""

from __future__ import annotations

import os

from statecheck.campaign.processes.tasks import Setting


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
