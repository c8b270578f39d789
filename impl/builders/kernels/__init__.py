"""The Triton kernels of the metadata builders."""
