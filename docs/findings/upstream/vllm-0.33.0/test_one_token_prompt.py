# SPDX-License-Identifier: Apache-2.0
"""A prompt of one token beside a request that decodes with drafts."""

DRAFTS = {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": 1}


def test_placeholder_drafts_are_not_computed_in_a_prefill(make_engine):
    engine = make_engine(runner=True, speculative_config=DRAFTS)
    engine.add("decoding", range(1, 100))
    engine.step()
    engine.add("short", [5])

    output = engine.step()

    (new,) = output.scheduled_new_reqs
    assert new.num_computed_tokens == 0  # there is no state before the row
    # A prefill keeps the state after its last token alone: with a placeholder behind the prompt, that state has taken it in.
    assert engine.mamba_metadata.num_prefill_tokens <= 1
