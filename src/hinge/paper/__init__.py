"""The paper, reproduced: every figure, table and claim, and ours beside them."""
