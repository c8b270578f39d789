"""The release's own engine: its scheduler, cache manager and worker, with a forward of ours."""
