"""Filters for uploaded classes, each in a separate, sandboxed process; Linux only.

`worker_filter.py` has the filter and `worker_process.py` its process, in which `inside/` runs, and
for Java also `java/`. docs/security.md says what the sandbox protects and what it does not. The
class names of RocketMQ 3.x (com.alibaba.rocketmq) are not supported.
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
