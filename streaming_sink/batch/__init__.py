"""One micro-batch, step by step: target table, profile, plan, write, report."""
