"""Pulls: PULL_MESSAGE and LITE_PULL_MESSAGE, from the frame to the answer.

One pull passes these steps. Each step has its own type, because what it knows is valid for longer
or for more pulls than the step before it::

    frame of the client
      |  remoting/codec.py decodes it, and recognises by remoting/pull_fields.py the header of a
      |  pull that differs from an earlier one only in queue and offsets
      v
    RemotingCommand               .ext_fields: the header as strings; or, if it was recognised,
      |                           PullFields: three numbers, and a PullSeries for all the rest
      |  pull_message.py `pull_message`: the one place where the header of a pull is decoded,
      |  once for each series
      v
    PullMessageRequestHeader      remoting/headers/message.py: the typed header
      |
      |  pull_checks.py `PullChecks.check`: may the group pull from the topic?
      v
    CheckedPulls                  pull_checks.py: the outcome, kept with the series while the tables
      |                           are unchanged; it has the header, and `terms` for a Pull
      |  `PullChecks.selector`: is there such a queue, and which messages are wanted?
      v
    Pull                          waiting/pull.py: what an answer needs, and nothing else: the
      |                           connection, opaque, queue, offset, selector and PullTerms
      |
      |-- there are messages: `pull_message` reads them and answers
      |
      v  there are none
    HeldPull                      waiting/pull_request_hold.py: a Pull that waits, with its deadline
                                  and its place; its Pull changes when its offset moves

PullTerms are apart from CheckedPulls because a held pull must not keep its header: a subscription
in it may be long, and its bytes would not be counted (`waiting/places.py`).

A held pull is answered by

========================================  =======================================================
messages arrive for a lone, usual pull    the C extension, by pull_wakes.py `DirectWakes`
messages arrive for any other             `PullRequestHoldService.notify_messages`, which tries it
                                          by `PullMessageProcessor._resume`
its deadline is over                      the same `_resume`, found by a scan of the service
its user has lost its rights              `_resume`, too: it is refused
its connection is closed                  nothing: the service drops it
========================================  =======================================================

A pull from a static topic is held by static_topics/static_topic.py, because its messages may be in
another broker.

Most pulls of a consumer that has kept up take none of these steps. They come in bursts, and
pull_runs.py (called by remoting/burst_reader.py) has the C extension take them: the extension
compares the bytes with a PullTemplate (remoting/pull_templates.py: a header without its numbers),
and with a Holding (pull_runs.py: the tables and limits, from CheckedPulls) it makes Pull and
HeldPull at once. What it cannot hold it returns as RemotingCommands with PullFields.
`pull_message` is the specification of all that.
"""
