"""The folder of a command's temporary files. The folder is removed when the command ends, whatever killed workers left there."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_VARIABLE = "STATECHECK_TEMPORARY"
"""The process that removes the folder, and the folder for files that stay: `pid:folder`. The folder itself is TMPDIR."""


def begin() -> None:
    """Have this process, and each process that it starts, make temporary files in a folder of this command."""
    pid, _, lasting = os.environ.get(_VARIABLE, "").partition(":")
    # A command that goes on in the environment of a release is the same process, and has its folder.
    if pid == str(os.getpid()):
        return
    lasting = lasting or tempfile.gettempdir()
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="statecheck-")
    os.environ[_VARIABLE] = f"{os.getpid()}:{lasting}"
    tempfile.tempdir = None


def end() -> None:
    """Remove the folder where this process made it."""
    if os.environ.get(_VARIABLE, "").startswith(f"{os.getpid()}:"):
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def lasting_folder() -> Path:
    """Where files stay for later commands."""
    return Path(os.environ.get(_VARIABLE, "").partition(":")[2] or tempfile.gettempdir())


def folder_of_process(prefix: str) -> Path:
    """A new folder that this process removes when it ends, and that a command removes with its own folder where the process was killed."""
    folder, owner = tempfile.mkdtemp(prefix=prefix), os.getpid()

    def remove() -> None:
        # What is forked from this process has the handler, too.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
