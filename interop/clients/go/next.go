//go:build next

package main

import (
	"os"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Of the version in next.mod; released.go has the same names for version 2.1.2.

const undecided = primitive.UnkonwnState

// usesTLS: this client then encrypts, but checks no server's certificate and shows none.
var usesTLS = os.Getenv("INTEROP_TLS") != ""

func onPanic(handle func(cause interface{})) { primitive.DefaultPanicHandler = handle }

func producerTLS() []producer.Option { return []producer.Option{producer.WithTls(usesTLS)} }

func consumerTLS() []consumer.Option { return []consumer.Option{consumer.WithTls(usesTLS)} }

func adminTLS() []admin.AdminOption { return []admin.AdminOption{admin.WithTls(usesTLS)} }
