import math
from typing import Any
class Options:
    name = "options"
    def __init__(self, options: list[str]) -> None: self.options = options
    def answer(self, output: Any) -> str:
        text = getattr(output, "text", output).strip().strip(".").lower()
        if text not in self.options: raise ValueError("no option")
        return text
    def confidence(self, output: Any) -> float: return math.exp(sum(output.logprobs) / len(output.logprobs))
