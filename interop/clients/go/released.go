//go:build !next

package main

import (
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Of version 2.1.2, which has no TLS; next.go has the same names for the version after it.

const undecided = primitive.UnknowState

func onPanic(handle func(cause interface{})) { primitive.PanicHandler = handle }

func producerTLS() []producer.Option { return nil }

func consumerTLS() []consumer.Option { return nil }

func adminTLS() []admin.AdminOption { return nil }
