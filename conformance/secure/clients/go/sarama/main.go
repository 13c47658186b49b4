// sarama over a secured listener.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"zhumq/conformance/secure/steps"
)

var given = steps.Parse()

// exchange is the SCRAM client that sarama asks its caller for.
type exchange struct {
	conversation *scram.ClientConversation
}

func (own *exchange) Begin(user, password, authorization string) error {
	client, err := scram.SHA512.NewClient(user, password, authorization)
	if err == nil {
		own.conversation = client.NewConversation()
	}
	return err
}

func (own *exchange) Step(challenge string) (string, error) {
	return own.conversation.Step(challenge)
}

func (own *exchange) Done() bool {
	return own.conversation.Done()
}

func config(given steps.Arguments) *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Net.TLS.Enable = true
	made.Net.TLS.Config = given.TLS()
	if given.UsesSASL() {
		made.Net.SASL.Enable = true
		made.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		made.Net.SASL.User, made.Net.SASL.Password = given.User, given.Password
		made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{} }
	}
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

func addresses() []string {
	return []string{given.Bootstrap}
}

func withAdmin(body func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(addresses(), config(given))
	if err != nil {
		return err
	}
	return errors.Join(body(admin), admin.Close())
}

func create() error {
	return withAdmin(func(admin sarama.ClusterAdmin) error {
		detail := &sarama.TopicDetail{NumPartitions: steps.Partitions, ReplicationFactor: 1}
		return admin.CreateTopic(given.Topic, detail, false)
	})
}

func describe() error {
	return withAdmin(func(admin sarama.ClusterAdmin) error {
		found, err := admin.DescribeTopics([]string{given.Topic})
		if err != nil {
			return err
		}
		return steps.Equal(steps.Partitions, len(found[0].Partitions))
	})
}

func send(values []string) error {
	producer, err := sarama.NewSyncProducer(addresses(), config(given))
	if err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for _, value := range values {
		text := sarama.StringEncoder(value)
		messages = append(messages, &sarama.ProducerMessage{Topic: given.Topic, Key: text, Value: text})
	}
	return errors.Join(producer.SendMessages(messages), producer.Close())
}

func consume() error {
	client, err := sarama.NewClient(addresses(), config(given))
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	within, cancel := context.WithTimeout(context.Background(), steps.Wait)
	defer cancel()
	var found []string
	for partition := range int32(steps.Partitions) {
		end, err := client.GetOffset(given.Topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		part, err := consumer.ConsumePartition(given.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for range end {
			select {
			case message := <-part.Messages():
				found = append(found, string(message.Value))
			case <-within.Done():
				return fmt.Errorf("read %d records until the deadline", len(found))
			}
		}
		if err := part.Close(); err != nil {
			return err
		}
	}
	return steps.Same(steps.Numbers(0, steps.Records), found)
}

// reader reads until it has enough, and commits.
type reader struct {
	messages chan string
	enough   context.Context
}

func (own *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (own *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (own *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			own.messages <- string(message.Value)
		case <-own.enough.Done():
			session.Commit()
			return nil
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(count int) ([]string, error) {
	joined, err := sarama.NewConsumerGroup(addresses(), given.Topic, config(given))
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(context.Background(), steps.Wait)
	defer cancel()
	enough, stop := context.WithCancel(within)
	own := &reader{messages: make(chan string, count), enough: enough}
	ended := make(chan error, 1)
	go func() { ended <- joined.Consume(within, []string{given.Topic}, own) }()
	var found []string
	for len(found) < count && within.Err() == nil {
		select {
		case value := <-own.messages:
			found = append(found, value)
		case err := <-ended:
			stop()
			return found, errors.Join(fmt.Errorf("the session ended: %w", err), joined.Close())
		case <-within.Done():
		}
	}
	stop()
	return found, errors.Join(<-ended, joined.Close())
}

func committed() (int64, error) {
	sum := int64(0)
	err := withAdmin(func(admin sarama.ClusterAdmin) error {
		answer, err := admin.ListConsumerGroupOffsets(given.Topic, map[string][]int32{given.Topic: {0, 1}})
		if err != nil {
			return err
		}
		for _, partition := range answer.Blocks[given.Topic] {
			sum += partition.Offset
		}
		return nil
	})
	return sum, err
}

func remove() error {
	return withAdmin(func(admin sarama.ClusterAdmin) error {
		if err := admin.DeleteTopic(given.Topic); err != nil {
			return err
		}
		return steps.Until("the topic is gone", func() (bool, error) {
			topics, err := admin.ListTopics()
			_, there := topics[given.Topic]
			return !there, err
		})
	})
}

func refused() error {
	made := config(given.WithWrongCredentials())
	made.Metadata.Retry.Max = 0
	opened, err := sarama.NewClient(addresses(), made)
	if err == nil {
		opened.Close()
	}
	if err == nil || given.UsesSASL() && !errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
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
