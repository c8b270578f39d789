"""Operators for CPUs of `sgl_kernel`, which is not installed: those that drafts need. The stand-ins of all others raise."""

import sys
from typing import Any

import torch


def install_operators() -> None:
    """Have the release import these; before it imports anything itself."""
    top, speculative = (__import__(name, fromlist=["_"]) for name in ("sgl_kernel", "sgl_kernel.speculative"))
    if hasattr(sys.modules["sgl_kernel"], "__file__"):
        return
    of_drafts = (
        assign_extend_cache_locs_cpu,
        assign_req_to_token_pool_cpu,
        fill_accept_out_cache_loc_cpu,
        fill_bonus_tokens_cpu,
        verify_tree_greedy_cpu,
    )
    vars(top).update({operator.__name__: operator for operator in of_drafts})
    vars(speculative)["reconstruct_indices_from_tree_mask"] = reconstruct_indices_from_tree_mask


def assign_extend_cache_locs_cpu(rows: Any, table: Any, starts: Any, ends: Any, out: Any, _: int) -> None:
    """Slots of each request's tokens from `starts` to `ends`, one request behind the other."""
    found = [table[row, start:end] for row, start, end in zip(rows, starts, ends, strict=True)]
    slots = torch.cat(found)
    out[: len(slots)] = slots.to(out.dtype)


def assign_req_to_token_pool_cpu(rows: Any, table: Any, starts: Any, ends: Any, slots: Any, _: int) -> None:
    """Write slots, one request behind the other, to the requests' places from `starts` to `ends`."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start


def fill_accept_out_cache_loc_cpu(accepted: Any, slots: Any, out: Any, *_: Any) -> None:
    """The slots of accepted nodes, without those that are -1."""
    index = accepted.reshape(-1)
    found = slots[index[index >= 0].long()]
    out[: len(found)] = found.to(out.dtype)


def fill_bonus_tokens_cpu(accepted: Any, lengths: Any, last: Any, stride: int) -> None:
    """The last accepted token of each request, of which so many are accepted in its row of `stride` tokens."""
    for row, length in enumerate(lengths.tolist()):
        last[row] = accepted.reshape(-1)[stride * row + length - 1]


def verify_tree_greedy_cpu(
    *,
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    target_predict: Any,
) -> None:
    """From the root of each request's drafts, follow those that the model says itself; the last one's prediction is a token more."""
    for row in range(candidates.shape[0]):
        node, count = 0, 0
        accept_index[row, 0] = retrive_index[row, 0]
        while count + 1 < accept_index.shape[1]:
            said, child = int(target_predict[row, node]), int(retrive_next_token[row, node])
            while child >= 0 and int(candidates[row, child]) != said:
                child = int(retrive_next_sibling[row, child])
            if child < 0:
                break
            predicts[retrive_index[row, node]] = said
            node, count = child, count + 1
            accept_index[row, count] = retrive_index[row, node]
        accept_token_num[row] = count
        predicts[retrive_index[row, node]] = int(target_predict[row, node])


def reconstruct_indices_from_tree_mask(
    mask: Any, lengths: Any, positions: Any, index: Any, children: Any, siblings: Any, rows: int, nodes: int
) -> None:
    """Of each request's tree of drafts, where a node stands, its first child and its next sibling; -1 where there is none."""
    trees = mask[: rows * nodes * nodes].reshape(rows, nodes, nodes).tolist()
    for row, tree in enumerate(trees):
        above = [[at for at in range(node) if tree[node][at]] for node in range(nodes)]
        parents = [max(found, default=-1) for found in above]
        for node in range(nodes):
            positions[row * nodes + node] = len(above[node]) + int(lengths[row])
            index[row, node] = row * nodes + node
            children[row, node] = _first(parents, node, node)
            siblings[row, node] = _first(parents, parents[node], node) if parents[node] >= 0 else -1


def _first(parents: list[int], parent: int, behind: int) -> int:
    """The first node behind that one with this parent."""
    return next((at for at in range(behind + 1, len(parents)) if parents[at] == parent), -1)
