"""The release's engine in pipeline-parallel stages."""
