// segmentio's kafka-go over a secured listener.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"

	"zhumq/conformance/secure/steps"
)

var given = steps.Parse()

func mechanism(given steps.Arguments) sasl.Mechanism {
	if !given.UsesSASL() {
		return nil
	}
	found, err := scram.Mechanism(scram.SHA512, given.User, given.Password)
	if err != nil {
		panic(err)
	}
	return found
}

func transport(given steps.Arguments) *kafka.Transport {
	return &kafka.Transport{TLS: given.TLS(), SASL: mechanism(given)}
}

func client(given steps.Arguments) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(given.Bootstrap), Timeout: steps.Wait, Transport: transport(given)}
}

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), steps.Wait)
}

func create() error {
	within, cancel := deadline()
	defer cancel()
	wanted := kafka.TopicConfig{Topic: given.Topic, NumPartitions: steps.Partitions, ReplicationFactor: 1}
	answer, err := client(given).CreateTopics(within, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return err
	}
	return answer.Errors[given.Topic]
}

func describe() error {
	within, cancel := deadline()
	defer cancel()
	answer, err := client(given).Metadata(within, &kafka.MetadataRequest{Topics: []string{given.Topic}})
	if err != nil {
		return err
	}
	return errors.Join(answer.Topics[0].Error, steps.Equal(steps.Partitions, len(answer.Topics[0].Partitions)))
}

func send(values []string) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(given.Bootstrap), Topic: given.Topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond, Transport: transport(given),
	}
	var messages []kafka.Message
	for _, value := range values {
		messages = append(messages, kafka.Message{Key: []byte(value), Value: []byte(value)})
	}
	within, cancel := deadline()
	defer cancel()
	return errors.Join(writer.WriteMessages(within, messages...), writer.Close())
}

func reader(config kafka.ReaderConfig) *kafka.Reader {
	config.Brokers, config.Topic, config.MaxWait = []string{given.Bootstrap}, given.Topic, 100*time.Millisecond
	config.StartOffset = kafka.FirstOffset
	config.Dialer = &kafka.Dialer{Timeout: steps.Wait, TLS: given.TLS(), SASLMechanism: mechanism(given)}
	return kafka.NewReader(config)
}

func consume() error {
	within, cancel := deadline()
	defer cancel()
	var found []string
	offsets, err := client(given).ListOffsets(within, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{given.Topic: {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}}})
	if err != nil {
		return err
	}
	for _, partition := range offsets.Topics[given.Topic] {
		alone := reader(kafka.ReaderConfig{Partition: partition.Partition})
		for range partition.LastOffset {
			message, err := alone.ReadMessage(within)
			if err != nil {
				return errors.Join(err, alone.Close())
			}
			found = append(found, string(message.Value))
		}
		if err := alone.Close(); err != nil {
			return err
		}
	}
	return steps.Same(steps.Numbers(0, steps.Records), found)
}

func member(count int) ([]string, error) {
	within, cancel := deadline()
	defer cancel()
	joined := reader(kafka.ReaderConfig{GroupID: given.Topic})
	var found []string
	for range count {
		message, err := joined.FetchMessage(within)
		if err == nil {
			found = append(found, string(message.Value))
			err = joined.CommitMessages(within, message)
		}
		if err != nil {
			return found, errors.Join(err, joined.Close())
		}
	}
	return found, joined.Close()
}

func committed() (int64, error) {
	within, cancel := deadline()
	defer cancel()
	answer, err := client(given).OffsetFetch(within, &kafka.OffsetFetchRequest{
		GroupID: given.Topic, Topics: map[string][]int{given.Topic: {0, 1}}})
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, partition := range answer.Topics[given.Topic] {
		sum += partition.CommittedOffset
	}
	return sum, answer.Error
}

func remove() error {
	within, cancel := deadline()
	defer cancel()
	answer, err := client(given).DeleteTopics(within, &kafka.DeleteTopicsRequest{Topics: []string{given.Topic}})
	if err == nil {
		err = answer.Errors[given.Topic]
	}
	if err != nil {
		return err
	}
	return steps.Until("the topic is gone", func() (bool, error) {
		answer, err := client(given).Metadata(within, &kafka.MetadataRequest{})
		if err != nil {
			return false, err
		}
		for _, topic := range answer.Topics {
			if topic.Name == given.Topic {
				return false, nil
			}
		}
		return true, nil
	})
}

func refused() error {
	other := given.WithWrongCredentials()
	dialer := &kafka.Dialer{Timeout: steps.Wait, TLS: other.TLS(), SASLMechanism: mechanism(other)}
	within, cancel := deadline()
	defer cancel()
	opened, err := dialer.DialContext(within, "tcp", given.Bootstrap)
	if err == nil {
		// With TLS 1.3 the broker looks at the certificate after the client's handshake is done.
		_, err = opened.Brokers()
		opened.Close()
	}
	if err == nil || within.Err() != nil || given.UsesSASL() && !errors.Is(err, kafka.SASLAuthenticationFailed) {
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
