"""Annotations by which handlers get the message and the broker object from FastStream's context."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from faststream import Context

from . import broker, message

RocketMessage: TypeAlias = Annotated[message.RocketMessage, Context("message")]
RocketBroker: TypeAlias = Annotated[broker.RocketBroker, Context("broker")]
