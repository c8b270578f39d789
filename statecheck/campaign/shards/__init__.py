"""A campaign on many machines. The unit of work is a shard: a `Plan` goes to a machine, and a `CampaignRecord` comes back.

`--shard 2/8`: each job of a CI matrix runs its shard, and `merge` adds up the records that it finds in folders. `--ray`: the shards
are tasks of a Ray cluster (`cluster`). Both add up with `merge.merged`, and write the whole with `merge.write_down`.
"""
