"""Every figure, table and claim of the paper, and ours beside them."""




