"""Tasks: what a local and a remote model answer, how sure the local one is, and how far the two agree."""

from hinge.tasks.classification import Classification as Classification
from hinge.tasks.detection import Detection as Detection
from hinge.tasks.ocr import OCR as OCR
from hinge.tasks.regression import Regression as Regression
from hinge.tasks.segmentation import Segmentation as Segmentation
from hinge.tasks.short_text import ShortText as ShortText
from hinge.tasks.task import Task as Task
from hinge.tasks.transcription import Transcription as Transcription
