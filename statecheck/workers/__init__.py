"""Subjects and kernels in worker processes that can be killed.

One illegal access on a GPU leaves a process in which everything fails from then on, and a kernel that never ends keeps it for
good. So the process that searches for counterexamples holds no device: a worker does, and is replaced when it comes to its end.
All of it works on the CPU too, where kernels are executed from their IR; a segmentation fault stands for the illegal access there.

A port for properties, in place of `InProcess`:

    with InWorker("impl", "cuda", time_limit=30.0) as port:
        context = ExecutionContext(load("impl"), port)

A call that ends its worker has the outcome `Raised("<fault>", "<words>", kind="fault")`, and so have the further calls of that
example, which are not run. The next example runs in a fresh worker. A spare one is ready, so this takes no time. Faults are
"illegal access", "misaligned access", "launch failure", "out of memory" and "worker died"; the words are
the same in every run. A hang has kind "hang". Exceptions that leave the device usable are the subject's own answers and stay what they are. An
example whose worker was killed from outside, by the system or a person, is run again from its beginning, up to twice.

A call that does not answer within `time_limit` seconds hangs. After the first one of a property (`begin_property`) the limit
is ten times the longest call that did answer, at least 2 s, for as long as smaller inputs are searched; `confirm` runs
the smallest in fresh workers with the whole limit.

Workers end with the process that started them, however it ends.
"""
