"""Memory from `torch.empty` is unwritten until torch or a kernel has written it, and not a moment longer."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from statecheck.kernels.sanitizer.empties import empties_unwritten
from statecheck.sanitizer import Sanitizer, UnwrittenRead, sanitize

pytestmark = pytest.mark.usefixtures("executed")

ROWS, COLUMNS = 4, 8


@pytest.fixture
def watch() -> Iterator[Sanitizer]:
    with sanitize() as watch, empties_unwritten(watch):
        yield watch


@triton.jit
def copy_kernel(in_ptr, out_ptr, stride, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.arange(0, COLUMNS)
    values = tl.load(in_ptr + tl.program_id(0) * stride + columns)
    tl.store(out_ptr + tl.program_id(0) * COLUMNS + columns, values)


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*(shape or (ROWS, COLUMNS)), dtype=torch.float32)


def read(tensor: torch.Tensor) -> None:
    """A launch that reads every element, of at most two dimensions."""
    tensor = tensor.view(1, -1) if tensor.dim() < 2 else tensor
    rows, columns = tensor.shape
    assert tensor.stride(1) == 1
    copy_kernel[(rows,)](tensor, torch.zeros_like(tensor), tensor.stride(0), COLUMNS=columns)


def first_unwritten(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The first element that is found unwritten."""
    with pytest.raises(UnwrittenRead) as caught:
        read(tensor)
    return caught.value.access.index


def on_a_device() -> torch.Tensor:
    with torch.device("cpu"):
        return empty()


EMPTIES: dict[str, Callable[[], torch.Tensor]] = {
    "empty": empty,
    "empty of a size": lambda: torch.empty(torch.Size([ROWS, COLUMNS])),
    "empty_like": lambda: torch.empty_like(torch.zeros(ROWS, COLUMNS)),
    "empty_strided": lambda: torch.empty_strided((ROWS, COLUMNS), (2 * COLUMNS, 1)),
    "empty_permuted": lambda: torch.empty_permuted((ROWS, COLUMNS), (0, 1)),
    "new_empty": lambda: torch.zeros(1).new_empty(ROWS, COLUMNS),
    "new_empty_strided": lambda: torch.zeros(1).new_empty_strided((ROWS, COLUMNS), (COLUMNS, 1)),
    "a view of it": lambda: empty(ROWS * COLUMNS).view(ROWS, COLUMNS),
    "a part of it": lambda: empty(ROWS + 2, COLUMNS)[1:-1],
    "pointed to by another one": lambda: torch.zeros(0).set_(empty()),  # type: ignore[call-overload]
    "on a chosen device": on_a_device,
}


def setitem(tensor: torch.Tensor, where: Any, value: float) -> None:
    tensor[where] = value


def in_a_thread(tensor: torch.Tensor) -> None:
    thread = threading.Thread(target=tensor.fill_, args=(1,))
    thread.start()
    thread.join()


def in_a_pool(tensor: torch.Tensor) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(torch.Tensor.zero_, tensor))


def by_a_kernel(tensor: torch.Tensor, rows: int = ROWS) -> None:
    copy_kernel[(rows,)](torch.ones(rows, COLUMNS), tensor, COLUMNS, COLUMNS=COLUMNS)


ONES = torch.ones(ROWS, COLUMNS)
ALL_COLUMNS = list(range(COLUMNS))
MADE: dict[str, Callable[[], torch.Tensor]] = {
    "zeros": lambda: torch.zeros(ROWS, COLUMNS),
    "full": lambda: torch.full((ROWS, COLUMNS), 2.0),
    "tensor": lambda: torch.tensor(ONES.tolist()),
    "legacy": lambda: torch.Tensor(ONES.tolist()),
    "from numpy": lambda: torch.from_numpy(np.ones((ROWS, COLUMNS), np.float32)),
    "new_zeros": lambda: empty().new_zeros(ROWS, COLUMNS),
    "ones_like": lambda: torch.ones_like(empty()),
    "clone": ONES.clone,
    "sobol": lambda: torch.quasirandom.SobolEngine(COLUMNS).draw(ROWS),
    "layer": lambda: layer().detach(),
    "out that grows": lambda: torch.add(ONES, ONES, out=torch.empty(0)),
    "out of several": lambda: torch.max(ONES.expand(2, -1, -1), 0, out=(empty(), empty().long()))[0],
    "resize_": lambda: empty().resize_(2 * ROWS, COLUMNS).fill_(1),
}
FILL: dict[str, Callable[[torch.Tensor], object]] = {
    "fill_": lambda tensor: tensor.fill_(1),
    "copy_": lambda tensor: tensor.copy_(ONES),
    "normal_": lambda tensor: tensor.normal_(),
    "out": lambda tensor: torch.add(ONES, ONES, out=tensor),
    "setitem": lambda tensor: setitem(tensor, slice(None), 1.0),
    "setitem by rows": lambda tensor: setitem(tensor, [3, 1, 0, 2], 1.0),
    "setitem by columns": lambda tensor: setitem(tensor, (slice(None), ALL_COLUMNS), 1.0),
    "setitem by mask": lambda tensor: setitem(tensor, ONES > 0, 1.0),
    "index_copy_": lambda tensor: tensor.index_copy_(0, torch.arange(ROWS), ONES),
    "masked_fill_": lambda tensor: tensor.masked_fill_(ONES > 0, 1.0),
    "scatter_": lambda tensor: tensor.scatter_(1, torch.arange(COLUMNS).expand(ROWS, -1), 1.0),
    "foreach": lambda tensor: torch._foreach_zero_([empty(), tensor]),
    "a transposed view": lambda tensor: tensor.t().copy_(torch.ones(COLUMNS, ROWS)),
    "row by row": lambda tensor: [row.zero_() for row in tensor],
    "column by column": lambda tensor: [tensor[:, column].zero_() for column in ALL_COLUMNS],
    "detach": lambda tensor: tensor.detach().data.zero_(),
    "numpy": lambda tensor: tensor.numpy().fill(1),
    "asarray": lambda tensor: np.asarray(tensor).fill(1),
    "dlpack": np.from_dlpack,
    "storage": lambda tensor: tensor.untyped_storage().copy_(torch.ones(ROWS, COLUMNS).untyped_storage()),
    "share_memory_": lambda tensor: tensor.share_memory_(),
    "a thread": in_a_thread,
    "a pool of threads": in_a_pool,
    "a kernel": by_a_kernel,
}


def layer() -> torch.Tensor:
    """Its weights start as `torch.empty`."""
    return torch.nn.LayerNorm((ROWS, COLUMNS)).weight


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("make", EMPTIES.values(), ids=EMPTIES)
def test_reading_unwritten_memory_is_reported(make: Callable[[], torch.Tensor]) -> None:
    assert first_unwritten(make()) == (0, 0)


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_memory_that_torch_has_filled_may_be_read(make: Callable[[], torch.Tensor]) -> None:
    read(make())


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("fill", FILL.values(), ids=FILL)
def test_written_memory_may_be_read(fill: Callable[[torch.Tensor], object]) -> None:
    tensor = empty()
    fill(tensor)
    read(tensor)


HALF: dict[str, Callable[[torch.Tensor], object]] = {
    "a slice": lambda tensor: tensor[:3].fill_(1),
    "rows one by one": lambda tensor: [tensor[row].zero_() for row in (2, 0, 1)],
    "setitem by rows": lambda tensor: setitem(tensor, [2, 0, 1], 1.0),
    "setitem by a mask of rows": lambda tensor: setitem(tensor, torch.arange(ROWS) < 3, 1.0),
    "index_copy_": lambda tensor: tensor.index_copy_(0, torch.tensor([1, 0, 2]), torch.ones(3, COLUMNS)),
    "index_fill_": lambda tensor: tensor.index_fill_(0, torch.tensor([1, 0, 2]), 1.0),
    "masked_fill_": lambda tensor: tensor.masked_fill_((torch.arange(ROWS) < 3)[:, None], 1.0),
    "out": lambda tensor: torch.add(ONES[:3], 1, out=tensor[:3]),
    "numpy of a part": lambda tensor: tensor[:3].numpy(),
    "a kernel": lambda tensor: by_a_kernel(tensor, rows=3),
}


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("fill", HALF.values(), ids=HALF)
def test_the_row_that_was_left_out_is_found(fill: Callable[[torch.Tensor], object]) -> None:
    tensor = empty()
    fill(tensor)
    read(tensor[:3])
    assert first_unwritten(tensor) == (3, 0)


@pytest.mark.usefixtures("watch")
def test_the_column_that_was_left_out_is_found() -> None:
    tensor = empty()
    tensor[:, :5].zero_()
    tensor[:, 6:].zero_()
    assert first_unwritten(tensor) == (0, 5)


@pytest.mark.usefixtures("watch")
def test_launches_that_only_pass_a_tensor_on_leave_it_unwritten() -> None:
    tensor = empty()
    for _ in range(2):
        read(tensor[:0])
        assert first_unwritten(tensor) == (0, 0)


@pytest.mark.usefixtures("watch")
def test_reading_on_the_host_writes_nothing() -> None:
    tensor = empty()
    _ = tensor + 1, tensor.sum().item(), tensor.tolist(), tensor[1:].clone(), str(tensor), tensor.data_ptr()
    assert first_unwritten(tensor) == (0, 0)


@pytest.mark.usefixtures("watch")
def test_memory_that_is_used_again_has_no_old_marks() -> None:
    reused = 0
    for _ in range(20):
        old = empty(64, 64)
        address = old.data_ptr()
        del old
        new = np.ones((64, 64), np.float32)
        tensor = torch.ones(64, 64)
        reused += address in (tensor.data_ptr(), new.ctypes.data)
        read(tensor)
        read(torch.from_numpy(new))
    assert reused


@pytest.mark.usefixtures("watch")
def test_memory_that_a_tensor_has_left_has_no_old_marks() -> None:
    tensor = empty(64, 64)
    address = tensor.data_ptr()
    tensor.resize_(4096, 4096)
    others = [torch.ones(64, 64) for _ in range(8)]
    assert address != tensor.data_ptr()
    for other in others:
        read(other)


def test_watched_tensors_are_not_kept_alive(watch: Sanitizer) -> None:
    tensor = empty(1024)
    tensor[:512].zero_()
    gone: list[bool] = []
    weakref.finalize(tensor.untyped_storage(), gone.append, True)
    assert watch.launches == 0
    del tensor
    gc.collect()
    assert gone


def test_memory_declared_unwritten_by_hand_is_written_by_torch_too(watch: Sanitizer) -> None:
    pool = torch.zeros(ROWS, COLUMNS)
    watch.unwritten(pool[1])
    assert first_unwritten(pool) == (1, 0)
    pool[1] = 3
    read(pool)


def test_after_the_context_torch_is_as_it_was() -> None:
    plain = threading.Thread.start
    with sanitize() as watch:
        with empties_unwritten(watch):
            tensor = empty()
        assert threading.Thread.start is plain
        read(tensor)
        read(empty())


def halves() -> torch.Tensor:
    """Made of two other tensors."""
    both = TwoTensor(empty(), empty())
    both.zero_()
    read(both.b)
    return both.a


FUNCTIONAL: dict[str, Callable[[], torch.Tensor]] = {
    "vmap": lambda: torch.vmap(lambda row: torch.empty_like(row).copy_(row))(ONES),
    "grad": lambda: torch.func.grad(lambda x: (torch.empty_like(x).copy_(x) * x).sum())(ONES),
    "compiled": lambda: torch.compile(lambda x: torch.empty_like(x).copy_(x), backend="eager")(ONES),
    "a subclass": halves,
}


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("make", FUNCTIONAL.values(), ids=FUNCTIONAL)
def test_tensors_that_stand_for_others_are_left_alone(make: Callable[[], torch.Tensor]) -> None:
    read(make())


@pytest.mark.usefixtures("watch")
def test_tensors_without_memory_of_the_cpu_are_left_alone() -> None:
    torch.empty(3, device="meta").fill_(1)
    torch.empty(0, 5).fill_(1)
    with FakeTensorMode():
        torch.empty_like(torch.empty(3).add_(1))
    torch.eye(3).to_sparse().mul_(2)
    read(torch.ones(ROWS, COLUMNS))
