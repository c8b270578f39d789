"""A campaign on many machines, in two ways with one interface: a `Plan` goes to a machine, and a `CampaignRecord` comes back.

`--shard 2/8`: each job of a CI matrix runs its shard of the plan (`plan.shard_of`), and `merge` adds up the records that it finds
in folders. `--ray`: the head of a cluster cuts the plan into units (`units.UnitQueue`) and adds up their records as they come
(`ray_cluster`). Both add up with `merge.added`, and write the whole with `keeper.write_down`.
"""
