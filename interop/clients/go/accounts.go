package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// account is that of the program; empty: requests are not signed.
var account = credentials(os.Getenv("INTEROP_ACCOUNT"))

// credentials of "NAME SECRET", or none.
func credentials(words string) primitive.Credentials {
	name, secret, _ := strings.Cut(words, " ")
	return primitive.Credentials{AccessKey: name, SecretKey: secret}
}

// signedBy makes a producer sign with an account; the client adds no fields with an empty one.
func signedBy(account primitive.Credentials) []producer.Option {
	if account.IsEmpty() {
		return nil
	}
	return []producer.Option{producer.WithCredentials(account)}
}

func consumerSignedBy(account primitive.Credentials) []consumer.Option {
	if account.IsEmpty() {
		return nil
	}
	return []consumer.Option{consumer.WithCredentials(account)}
}

// refused: the refusals of requests by accounts that may not.
func refused(stage *Stage) error {
	accounts := []struct {
		name    string
		account primitive.Credentials
	}{
		{"no_account", primitive.Credentials{}},
		{"unknown", credentials("interop-unknown the-secret-of-unknown")},
		{"other_secret", credentials(os.Getenv("INTEROP_ACCOUNT") + "-other")},
	}
	for _, one := range accounts {
		made, err := stage.producerOf(one.name, one.account)
		if err != nil {
			return err
		}
		stage.facts[one.name] = stage.refusal(sendBy(made, stage.message("", nil, "refused")))
	}
	weak := credentials(os.Getenv("INTEROP_WEAK_ACCOUNT"))
	made, err := stage.producerOf("weak", weak)
	if err != nil {
		return err
	}
	stage.facts["send"] = stage.refusal(sendBy(made, stage.message("", nil, "refused")))
	delayed := stage.message("", nil, "refused").WithDelayTimeLevel(1)
	stage.facts["delayed"] = stage.refusal(sendBy(made, delayed))
	if err := made.SendOneWay(context.Background(), stage.message("", nil, "refused")); err != nil {
		return err
	}
	result, err := stage.send(stage.message("", nil, "last"))
	if err != nil {
		return err
	}
	puller, err := rocketmq.NewPullConsumer(append(
		stage.consumerOptions(stage.topic, stage.topic+"puller"), consumerSignedBy(weak)...)...)
	if err == nil {
		err = puller.Subscribe(stage.topic, consumer.MessageSelector{})
	}
	if err == nil {
		err = puller.Start()
	}
	if err != nil {
		return err
	}
	stage.ends = append(stage.ends, func() { _ = puller.Shutdown() })
	_, err = puller.PullFrom(context.Background(), result.MessageQueue, 0, 1)
	stage.facts["pull"] = stage.refusal(err)
	got, err := stage.receive(1)
	stage.facts["received"] = bodies(got)
	// Last, because ACL 1.0 of 4.9.7 lets it pass.
	stage.facts["batch"] = stage.refusal(
		sendBy(made, stage.message("", nil, "refused"), stage.message("", nil, "refused")))
	return err
}

// producerOf starts a producer that tries once and signs with another account than the program.
func (stage *Stage) producerOf(
	name string, account primitive.Credentials,
) (rocketmq.Producer, error) {
	options := append(stage.unsignedOptions(stage.topic+name), producer.WithRetry(0))
	made, err := rocketmq.NewProducer(append(options, signedBy(account)...)...)
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	}
	return made, err
}

func sendBy(made rocketmq.Producer, some ...*primitive.Message) error {
	_, err := made.SendSync(context.Background(), some...)
	return err
}

var (
	// This client has two forms of an error.
	toldCode = regexp.MustCompile(
		`(?:CODE|Response Code): (\d+) *,? *(?:DESC|remark): (?s:(.*))`)
	javaPlace = regexp.MustCompile(`, [\w.$]+\([\w.]+:\d+\)$`)
)

// refusal is the broker's code and text, without the line of Java that 4.x adds.
func (stage *Stage) refusal(err error) any {
	if err == nil {
		return "passed"
	}
	found := toldCode.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Sprint("no code: ", err)
	}
	code, _ := strconv.Atoi(found[1])
	text := javaPlace.ReplaceAllString(strings.TrimSpace(found[2]), "")
	return []any{code, strings.ReplaceAll(text, stage.topic, "<topic>")}
}
