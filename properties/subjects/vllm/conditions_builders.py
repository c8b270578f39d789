"""Conditions that entries of `vllm_known.toml` about batches and builders name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from oracle.builders.base import kept_width
from oracle.builders.batch import BuilderConfig, Step, StepRow, decodes_a_tail, fits_graph_buffers, is_prefill
from properties.harness.answers.builders import config_of, step_of
from properties.harness.case import Case
from properties.harness.values import Call
from properties.subjects.vllm.conditions_align import resolved_calls

_GDN = "GDNAttentionMetadataBuilder"


def uniform_prompts(case: Case) -> bool:
    """A uniform batch, whose rows differ in padding alone, has a row in its prompt, and that was to matter."""
    options, marks, lens = _uniform(case.calls[-1])
    return not options["treat_short_extends_as_decodes"] and any(marks) and len({*lens} - {0}) <= 1


def uniform_padding(case: Case) -> bool:
    """A uniform batch has padding, and rows in their prompt were to matter."""
    options, _, lens = _uniform(case.calls[-1])
    return not options["treat_short_extends_as_decodes"] and 0 in lens


def _uniform(call: Call) -> tuple[dict[str, bool], tuple[int, ...], tuple[int, ...]]:
    """The options, marks and lengths of a split; nothing at all where it need not be uniform."""
    options = call.named
    if not options["require_uniform"]:
        return {"treat_short_extends_as_decodes": True}, (), ()
    batch = options["common_attn_metadata"]
    starts = batch["query_start_loc_cpu"].values()
    lens = tuple(end - start for start, end in pairwise(starts))
    return dict(options), batch["is_prefilling"].values(), lens


def drafted_nothing(case: Case) -> bool:
    """GDN has to build a step with a decode that drafted nothing, which may have accepted several tokens."""
    built = _built(case)
    if built is None or not built[0].function.startswith(_GDN):
        return False
    _, step, config = built
    nobody = all((row.drafts or 0) <= 0 for row in step.rows)
    spared = [row for row in step.rows if row.query_len == 1 and not is_prefill(step, row)]
    return config.num_spec > 0 and any(nobody or row.drafts == -1 for row in spared)


def first_token(case: Case) -> bool:
    """GDN has to build a step without drafts in which a prompt's first token comes before any longer row."""
    built = _built(case)
    if built is None or not built[0].function.startswith(_GDN):
        return False
    _, step, _ = built
    short = next((r for r, row in enumerate(step.rows) if row.query_len > 1), len(step.rows))
    return any(row.query_len == 1 and row.num_computed == 0 for row in step.rows[:short])


def padded_to_tokens(case: Case) -> bool:
    """GDN has to build a full graph's step with more or fewer tokens than rows."""
    built = _built(case)
    if built is None or not built[0].function.startswith(_GDN):
        return False
    _, step, config = built
    only_decodes = not any(_prefills(step, row) for row in step.rows)
    fits = fits_graph_buffers(step, config, "gdn")
    return fits and only_decodes and step.num_actual_tokens != len(step.rows)


def _prefills(step: Step, row: StepRow) -> bool:
    return is_prefill(step, row) and not decodes_a_tail(row, "gdn")


def kept_table(case: Case) -> bool:
    """Mode "all" has to copy a table into the buffers of full graphs that is wider than these."""
    built = _built(case)
    if built is None or built[0].function.startswith(_GDN):
        return False
    _, step, config = built
    wide = bool(step.rows) and len(step.rows[0].blocks) > kept_width(config)
    return config.mode == "all" and config.full_cudagraphs and wide


def kept_indices(case: Case) -> bool:
    """Mode "all" has to build a full graph's step with more or fewer tokens than rows."""
    built = _built(case)
    if built is None or built[0].function.startswith(_GDN):
        return False
    _, step, config = built
    return config.mode == "all" and config.full_cudagraphs and step.num_actual_tokens != len(step.rows)


def _built(case: Case) -> tuple[Call, Step, BuilderConfig] | None:
    """The last call of the case that builds metadata, with its step and its builder's configuration."""
    builds = [call for call, _ in resolved_calls(case) if ".build" in call.function]
    return (builds[-1], step_of(builds[-1]), config_of(builds[-1].named["self"])) if builds else None


BUILDERS: Mapping[str, Callable[[Case], bool]] = {
    condition.__name__: condition
    for condition in (
        uniform_prompts,
        uniform_padding,
        drafted_nothing,
        first_token,
        padded_to_tokens,
        kept_table,
        kept_indices,
    )
}
