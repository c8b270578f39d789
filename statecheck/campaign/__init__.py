"""A campaign assigns properties to worker processes within a budget, and keeps a state. `fuzz` is a short campaign, `nightly` a long one,
`exhaust` one with enumerated inputs, `conform` one with fixed examples.

A campaign begins with a `Plan` (`plan`), which is data and can be sent to another machine. `coordinator.begin` loads the subject, chooses the properties
that apply to it, and makes the empty state; `corpus` claims the campaign's folder, so that no other process writes there. What campaigns
that were killed had in hand goes to the `corpus`.

The `coordinator` has the one loop. Workers start first, which takes nothing of the budget. Then each idle worker gets the next task of the
`scheduler`, whose phases are:

1. the canary (`canary`), a property that must fail: if it is not found, shrunk, reported and replayed, what passes means nothing;
2. replays of the corpus, what failed last first;
3. a first pass over all properties, in an order that was learned from planted defects (`order.json`);
4. explorations whose worker died or hung, again with the same seed in an isolated process;
5. rounds over all properties until the budget is used; or the fixed examples of a profile (`conformance`), or enumerations.

Tasks and events are the messages of `tasks`. A worker (`worker`) does one task at a time and sends events; an
`Exploration` observes the examples of one property, has each failing case on disk before it goes on, and reports the
smallest. The pool (`pool`) sees from outside that a worker is silent for too long or dead, and makes an event of that, too. The
coordinator applies every event to the state (`state`).

The state of a campaign is its record (`record`) and what else decides what comes next: a `PropertyState` has the `PropertyRecord` that is saved
of it. The record is written to `campaign.json` every ten seconds and with each new failure, and `report` and `display` show it.

At the end, failing cases that are on disk and in no report become findings, declared defects are judged (`state`), and the marks that
were reached are compared with those that should be (`marks`). A campaign of several shards runs on several machines; `merge` adds up their records,
and `cluster` has Ray run the shards.
"""
