"""How long processes and servers may take before they are ended or given up: the only place where it is decided what hangs. A script that is
handed to a project has its own.

All are seconds, by the clock. A command's `--time-limit` replaces `CALL`; the others are fixed. The time of a budget, of shrinking and of
a diagnosis is no limit of a hang: it ends a search, and no process.
"""

from __future__ import annotations

CALL = 30.0
"""A call of the subject. Calls take milliseconds; a first launch on a busy machine, or a scenario of a model, takes seconds."""
CALL_AFTER_A_HANG, TIMES_LONGEST_CALL = 2.0, 10.0
"""A call after one that hangs: ten times the longest that did answer, and at least two. Shrinking a hang tries many inputs that hang."""
REPEATED_HANG = 10.0
"""A case that hangs, once more under the sanitizer, only to see in which line it is."""
LAST_CALLS = 3
"""When the budget is over: so many times the limit of a call, for an example that was begun in time and makes several calls."""
COMPILATION = 120.0
"""A kernel's compilation on a GPU, which is no call of the subject and takes seconds, on a busy machine many."""
START = 120.0
"""A worker until it is ready: it imports the subject, and touches the device, whose driver may take half a minute."""
CAMPAIGN_START = 180.0
"""A campaign's worker until it is ready: with an isolated subject it waits for a worker of its own, which has `START`."""
OTHER_WORK = 600.0
"""What a campaign's worker does beside calls of its own, added to `CALL`: a report, or calls in an isolated process, which has these
limits itself, is started again and compiles kernels."""
EXIT = 5.0
"""A process that was asked to end, or whose pipe has ended: until its exit status is known, and before it is killed."""
TRACEBACK = 2.0
"""A process that hangs, until it has written where: it does so in C, whatever its interpreter is doing."""
KILL = 10.0
"""A process that was killed, until it is gone: one that waits for a device's driver may never end."""
COMMAND = 30.0
"""A short program of the system, such as git or nvidia-smi."""
REQUEST = 15.0
"""An answer of a library's own server, to a request of a few tokens."""
ARCHITECTURES = 600.0
"""The list of the architectures of llama.cpp that a library can make, most of which are tried in processes."""
CLUSTER = 10.0
"""A connection to a cluster's head; Ray itself would try for minutes."""
CLUSTER_END = 60.0
"""After Ctrl-C, the records of shards, which end as if Ctrl-C had been typed at their machines."""
