// franz-go over a secured listener.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"zhumq/conformance/secure/steps"
)

var given = steps.Parse()

func client(given steps.Arguments, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(given.Bootstrap), kgo.DialTLSConfig(given.TLS()))
	if given.UsesSASL() {
		options = append(options, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()))
	}
	return kgo.NewClient(options...)
}

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), steps.Wait)
}

func withAdmin(body func(context.Context, *kadm.Client) error) error {
	opened, err := client(given)
	if err != nil {
		return err
	}
	defer opened.Close()
	within, cancel := deadline()
	defer cancel()
	return body(within, kadm.NewClient(opened))
}

func create() error {
	return withAdmin(func(within context.Context, admin *kadm.Client) error {
		_, err := admin.CreateTopic(within, steps.Partitions, 1, nil, given.Topic)
		return err
	})
}

func describe() error {
	return withAdmin(func(within context.Context, admin *kadm.Client) error {
		found, err := admin.ListTopics(within, given.Topic)
		if err == nil {
			err = found.Error()
		}
		if err != nil {
			return err
		}
		return steps.Equal(steps.Partitions, len(found[given.Topic].Partitions))
	})
}

func send(values []string) error {
	producer, err := client(given)
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: given.Topic, Key: []byte(value), Value: []byte(value)})
	}
	within, cancel := deadline()
	defer cancel()
	return producer.ProduceSync(within, records...).FirstErr()
}

func read(count int, commit bool, options ...kgo.Opt) ([]string, error) {
	options = append(options, kgo.ConsumeTopics(given.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consumer, err := client(given, options...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	within, cancel := deadline()
	defer cancel()
	var found []string
	for len(found) < count {
		fetches := consumer.PollFetches(within)
		if err := fetches.Err(); err != nil {
			return found, err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	if commit {
		err = consumer.CommitUncommittedOffsets(within)
	}
	return found, err
}

func consume() error {
	found, err := read(steps.Records, false)
	if err != nil {
		return err
	}
	return steps.Same(steps.Numbers(0, steps.Records), found)
}

func member(count int) ([]string, error) {
	return read(count, true, kgo.ConsumerGroup(given.Topic), kgo.DisableAutoCommit())
}

func committed() (int64, error) {
	sum := int64(0)
	err := withAdmin(func(within context.Context, admin *kadm.Client) error {
		found, err := admin.FetchOffsets(within, given.Topic)
		found.Each(func(each kadm.OffsetResponse) { sum += each.At })
		return err
	})
	return sum, err
}

func remove() error {
	return withAdmin(func(within context.Context, admin *kadm.Client) error {
		if _, err := admin.DeleteTopic(within, given.Topic); err != nil {
			return err
		}
		return steps.Until("the topic is gone", func() (bool, error) {
			found, err := admin.ListTopics(within)
			return !found.Has(given.Topic), err
		})
	})
}

func refused() error {
	opened, err := client(given.WithWrongCredentials(), kgo.RequestRetries(0), kgo.RetryTimeout(0))
	if err != nil {
		return err
	}
	defer opened.Close()
	within, cancel := deadline()
	defer cancel()
	err = opened.Ping(within)
	if err == nil || within.Err() != nil || given.UsesSASL() && !errors.Is(err, kerr.SaslAuthenticationFailed) {
		return fmt.Errorf("expected to be refused, got %v", err)
	}
	return nil
}

func main() {
	steps.Run(steps.Client{
		Create: create, Describe: describe, Consume: consume, Delete: remove, Refused: refused,
		Send: send, Member: member, Committed: committed,
	})
}
