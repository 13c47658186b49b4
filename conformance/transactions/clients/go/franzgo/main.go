// franz-go: transactions, and a session that consumes, transforms and produces.
package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"zhumq/conformance/transactions/steps"
)

type client struct {
	given    steps.Arguments
	producer *kgo.Client
}

func (one *client) connect(options ...kgo.Opt) *kgo.Client {
	opened, err := kgo.NewClient(append(options, kgo.SeedBrokers(one.given.Bootstrap))...)
	steps.Must(err)
	return opened
}

func (one *client) transactional(options ...kgo.Opt) *kgo.Client {
	return one.connect(append(options, kgo.TransactionalID(one.given.ID))...)
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), steps.Wait)
}

func (one *client) Transact(values []string, commit bool) {
	ctx, cancel := limited()
	defer cancel()
	steps.Must(one.producer.BeginTransaction())
	for _, value := range values {
		for _, topic := range one.given.Topics() {
			steps.Must(one.producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
		}
	}
	steps.Must(one.producer.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
}

func (one *client) SendEnd() {
	ctx, cancel := limited()
	defer cancel()
	plain := one.connect()
	defer plain.Close()
	for _, topic := range one.given.Topics() {
		steps.Must(plain.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(steps.End)}).FirstErr())
	}
}

func (one *client) Read(topic string, committed bool) []string {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	reader := one.connect(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level))
	defer reader.Close()
	ctx, cancel := limited()
	defer cancel()
	var found []string
	for {
		fetches := reader.PollFetches(ctx)
		steps.Must(fetches.Err())
		for _, record := range fetches.Records() {
			if string(record.Value) == steps.End {
				return found
			}
			found = append(found, string(record.Value))
		}
	}
}

// SendOffsets reads the topic up to the offset in a session of the group, whose offsets are part of the transaction.
func (one *client) SendOffsets(offset int64, commit bool) {
	one.producer.Close()
	ctx, cancel := limited()
	defer cancel()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(one.given.Bootstrap), kgo.TransactionalID(one.given.ID), kgo.ConsumerGroup(one.given.Group),
		kgo.ConsumeTopics(one.given.First), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	steps.Must(err)
	position := int64(-1)
	for position < offset-1 {
		fetches := session.PollRecords(ctx, 1)
		steps.Must(fetches.Err())
		for _, record := range fetches.Records() {
			position = record.Offset
		}
	}
	steps.Must(session.Begin())
	steps.Must(session.ProduceSync(ctx, &kgo.Record{Topic: one.given.Second, Value: []byte("with offsets")}).FirstErr())
	ended, err := session.End(ctx, kgo.TransactionEndTry(commit))
	steps.Must(err)
	if ended != commit {
		panic("the session ended otherwise")
	}
	session.Close()
	one.producer = one.transactional()
}

func (one *client) CommittedOffset() int64 {
	ctx, cancel := limited()
	defer cancel()
	plain := one.connect()
	defer plain.Close()
	offsets, err := kadm.NewClient(plain).FetchOffsets(ctx, one.given.Group)
	steps.Must(err)
	found, has := offsets.Lookup(one.given.First, 0)
	if !has {
		return -1
	}
	return found.At
}

func (one *client) Fenced() bool {
	ctx, cancel := limited()
	defer cancel()
	steps.Must(one.producer.BeginTransaction())
	steps.Must(one.producer.ProduceSync(ctx, &kgo.Record{Topic: one.given.Second, Value: []byte("fenced")}).FirstErr())
	first := one.producer
	one.producer = one.transactional()
	one.Transact([]string{"of the second"}, true)
	err := first.EndTransaction(ctx, kgo.TryCommit)
	first.Close()
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

func (one *client) Misuse() bool {
	ctx, cancel := limited()
	defer cancel()
	outside := one.producer.ProduceSync(ctx, &kgo.Record{Topic: one.given.First, Value: []byte("outside")}).FirstErr()
	// An end without a beginning is no error here.
	return outside != nil
}

func main() {
	one := &client{given: steps.Parse()}
	one.producer = one.transactional()
	steps.Run(one.given, one)
}
