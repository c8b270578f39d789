"""What happens to a request: which tokens it has, which blocks it holds, and which prefix every block stands for."""
