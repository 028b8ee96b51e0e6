"""Tasks: what a local and a remote model answer, how sure the local one is, and how far the two agree."""

from hinge.tasks.images import Detection as Detection
from hinge.tasks.images import Segmentation as Segmentation
from hinge.tasks.task import Classification as Classification
from hinge.tasks.task import Regression as Regression
from hinge.tasks.task import Task as Task
from hinge.tasks.text import OCR as OCR
from hinge.tasks.text import ShortText as ShortText
from hinge.tasks.text import Transcription as Transcription
