"""What the policies regret: the parts of benchmarks/regret.py."""
