"""The policy of class filters: keys of broker and filter server that allow and limit them.

A broker passes its policy on to the filter servers that it runs. Pure.

Java counterpart: filtersrv/FiltersrvConfig.java of 4.2.0. The additional keys are ours: it let
every client run any class in the server's process (as in CVE-2023-33246 and CVE-2023-37582).
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import setting


@dataclass(slots=True)
class FilterPolicy:
    """Keys of class filters. Without any of them set no class filter works.

    Attributes:
      filter_classes_file: JSON file that defines classes by name: `{"com.shop.Cheap":
        {"expression": "price < 10"}, "com.shop.Big": {"named": "big"}}`; "" = none. Ours.
      client_upload_filter_class_enable: whether the source of a class comes from consumers (302);
        otherwise it is fetched from the repository below, every minute.
      filter_class_repertory_url: the repository: CLASSNAME.java, or .py, is added; http, https, or
        file for a folder; "" = none.
      java_filter_enable, python_filter_enable: whether source in Java, or Python, is run at all,
        each group's in a separate process with almost no rights. Ours.
      filter_upload_groups: the consumer groups that may upload, comma-separated; "*" = all of them,
        "" = none. Ours.
      filter_worker_memory_max: MiB that the process of a filter may take, a JVM's own included.
        128 hold a small JVM; Python needs 30. Ours.
      filter_batch_timeout_millis: longest time of a filter for the messages of one pull. Ours.
      filter_strikes_max: failures in a row after which a class counts as broken until it is
        uploaded again. Ours.
      compress_msg_body_over_howmuch: bytes from which on bodies are compressed again, after the
        filter has seen them.
      zip_compress_level: of zlib, 0 to 9.
    """

    filter_classes_file: str = setting("", guarded="is a path of files")
    client_upload_filter_class_enable: bool = setting(True, guarded="decides whose code is run")
    filter_class_repertory_url: str = setting("", guarded="decides whose code is run")
    java_filter_enable: bool = setting(False, guarded="decides whose code is run")
    python_filter_enable: bool = setting(False, guarded="decides whose code is run")
    filter_upload_groups: str = setting("", guarded="decides whose code is run")
    filter_worker_memory_max: int = setting(128, minimum=32, maximum=65_536)
    filter_batch_timeout_millis: int = setting(1_000, minimum=1)
    filter_strikes_max: int = setting(3, minimum=1)
    compress_msg_body_over_howmuch: int = setting(8_192, minimum=0)
    zip_compress_level: int = setting(5, minimum=0, maximum=9)

    def may_upload(self, group: str) -> bool:
        """Whether a consumer group is on the allow-list."""
        allowed = {name.strip() for name in self.filter_upload_groups.split(",")}
        return "*" in allowed or group in allowed
