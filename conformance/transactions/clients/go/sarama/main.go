// sarama: transactions.
package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
	"zhumq/conformance/transactions/steps"
)

type client struct {
	given    steps.Arguments
	producer sarama.SyncProducer
}

func (one *client) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	return config
}

func (one *client) transactional() sarama.SyncProducer {
	config := one.config()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = one.given.ID
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.Retry.Backoff = 50 * time.Millisecond
	opened, err := sarama.NewSyncProducer([]string{one.given.Bootstrap}, config)
	steps.Must(err)
	return opened
}

func send(producer sarama.SyncProducer, topic, value string) error {
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	return err
}

func (one *client) end(commit bool) {
	if commit {
		steps.Must(one.producer.CommitTxn())
	} else {
		steps.Must(one.producer.AbortTxn())
	}
}

func (one *client) Transact(values []string, commit bool) {
	steps.Must(one.producer.BeginTxn())
	for _, value := range values {
		for _, topic := range one.given.Topics() {
			steps.Must(send(one.producer, topic, value))
		}
	}
	one.end(commit)
}

func (one *client) SendEnd() {
	plain, err := sarama.NewSyncProducer([]string{one.given.Bootstrap}, one.config())
	steps.Must(err)
	defer plain.Close()
	for _, topic := range one.given.Topics() {
		steps.Must(send(plain, topic, steps.End))
	}
}

func (one *client) Read(topic string, committed bool) []string {
	config := one.config()
	config.Consumer.IsolationLevel = sarama.ReadUncommitted
	if committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{one.given.Bootstrap}, config)
	steps.Must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	steps.Must(err)
	defer partition.Close()
	var found []string
	deadline := time.After(steps.Wait)
	for {
		select {
		case message := <-partition.Messages():
			if string(message.Value) == steps.End {
				return found
			}
			found = append(found, string(message.Value))
		case <-deadline:
			panic("no end")
		}
	}
}

func (one *client) SendOffsets(offset int64, commit bool) {
	steps.Must(one.producer.BeginTxn())
	steps.Must(send(one.producer, one.given.Second, "with offsets"))
	offsets := map[string][]*sarama.PartitionOffsetMetadata{one.given.First: {{Partition: 0, Offset: offset}}}
	steps.Must(one.producer.AddOffsetsToTxn(offsets, one.given.Group))
	one.end(commit)
}

func (one *client) CommittedOffset() int64 {
	admin, err := sarama.NewClusterAdmin([]string{one.given.Bootstrap}, one.config())
	steps.Must(err)
	defer admin.Close()
	found, err := admin.ListConsumerGroupOffsets(one.given.Group, map[string][]int32{one.given.First: {0}})
	steps.Must(err)
	return found.GetBlock(one.given.First, 0).Offset
}

func (one *client) Fenced() bool {
	steps.Must(one.producer.BeginTxn())
	steps.Must(send(one.producer, one.given.Second, "fenced"))
	first := one.producer
	one.producer = one.transactional()
	err := first.CommitTxn()
	first.Close()
	return err != nil && first.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0
}

func (one *client) Misuse() bool {
	outside := send(one.producer, one.given.First, "outside")
	end := one.producer.CommitTxn()
	return outside != nil && end != nil && !errors.Is(end, sarama.ErrOutOfBrokers)
}

func main() {
	one := &client{given: steps.Parse()}
	one.producer = one.transactional()
	steps.Run(one.given, one)
}
