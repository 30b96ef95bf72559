"""Uploaded classes, each in a process of its own that is locked in: Linux only.

`worker_filter.py` is the filter; `worker_process.py` its process, which `inside/` runs in, and for
Java `java/`. What is protected and what is not: docs/security.md. Not done: the names of
RocketMQ 3.x (com.alibaba.rocketmq).
"""

from .limits import CLASS_NAME_LENGTH_MAX, SOURCE_BYTES_MAX, WorkerLimits
from .upload import check_class_name, check_source
from .worker_filter import FilterLanguage, WorkerFilter

__all__ = [
    "CLASS_NAME_LENGTH_MAX",
    "SOURCE_BYTES_MAX",
    "FilterLanguage",
    "WorkerFilter",
    "WorkerLimits",
    "check_class_name",
    "check_source",
]
