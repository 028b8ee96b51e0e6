"""Reading text in images (OCR).

    output        {"text": …, "scores": […]}, the probability of each character; or {"text": …, "confidence": …}; or the
                  text alone, which is taken for sure
    answer        the text
    confidence    the mean score; 0 where nothing was read
    agreement     1 - CER, 0 at least

The character error rate is the least number of characters to replace, insert or delete, over the length of the remote's
text. White space counts as one blank, and at the ends not at all.
"""

from __future__ import annotations

from typing import Any

from hinge.tasks.task import sureness, text_of
from hinge.tasks.transcription import error_rate


class OCR:
    """Text in images.

    >>> task = OCR()
    >>> task.confidence({"text": "No 7", "scores": [0.9, 0.8, 1.0, 0.5]}), task.confidence("")
    (0.8, 0.0)
    >>> task.agreement("No  1", "No 7")
    0.75
    """

    def answer(self, output: Any) -> str:
        """The text."""
        return text_of("OCR", output)

    def confidence(self, output: Any) -> float:
        """The mean score of the characters; 0 where there is none."""
        return sureness("OCR", output) if self.answer(output).strip() else 0.0

    def agreement(self, local: str, remote: str) -> float:
        """1 - CER."""
        return 1.0 - error_rate(" ".join(local.split()), " ".join(remote.split()))
