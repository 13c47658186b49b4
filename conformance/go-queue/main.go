// What a go-zero application does with go-queue's kq: push, and consume in a group. Each check prints PASS or FAIL.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/zeromicro/go-queue/kq"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/queue"
	"github.com/zeromicro/go-zero/core/service"
)

const (
	wait     = 30 * time.Second
	interval = 20 * time.Millisecond
)

var broker = os.Getenv("BOOTSTRAP")

type check struct {
	name string
	run  func() error
}

func main() {
	logx.Disable()
	checks := []check{
		{"kq: messages pushed in chunks reach a consumer, each once", pushedInChunks},
		{"kq: messages pushed one by one are in order within a partition", pushedInSync},
		{"kq: the pusher creates its topic", createsTopic},
		{"kq: keys survive, and a key keeps its partition", keys},
		{"kq: two queues of one group share the partitions", shared},
		{"kq: two groups each get everything", broadcast},
		{"kq: a queue goes on where its group stopped", resumes},
		{"kq: commits in order", commitsInOrder},
		{"kq: a queue with several connections", severalConnections},
		{"kafka-go: topics are created, described and deleted", topics},
		{"kafka-go: offsets of a partition", offsets},
	}
	left := strings.Split(os.Getenv("COMPACTED_RECORDS"), ";")
	for place, topic := range strings.Split(os.Getenv("COMPACTED_TOPICS"), ",") {
		if topic != "" {
			checks = append(checks, check{"kq: " + topic + " is read to its end", compacted(topic, left[place])})
		}
	}
	failed := false
	for _, each := range checks {
		if !strings.Contains(each.name, os.Getenv("ONLY")) {
			continue
		}
		if err := each.run(); err != nil {
			failed = true
			fmt.Printf("FAIL\t%s\n", each.name)
			fmt.Fprintf(os.Stderr, "%s: %v\n", each.name, err)
		} else {
			fmt.Printf("PASS\t%s\n", each.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// sink collects what a queue's handler is given.
type sink struct {
	mutex  sync.Mutex
	keys   []string
	values []string
}

func (s *sink) Consume(_ context.Context, key, value string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.keys = append(s.keys, key)
	s.values = append(s.values, value)
	return nil
}

func (s *sink) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.values)
}

// different counts the values without repetitions: a rebalance may deliver again what was not committed yet.
func (s *sink) different() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	seen := map[string]bool{}
	for _, value := range s.values {
		seen[value] = true
	}
	return len(seen)
}

func fresh(word string) string {
	return fmt.Sprintf("kq-%s-%d", word, time.Now().UnixNano())
}

// until waits for a fact, with a deadline.
func until(what string, fact func() bool) error {
	deadline := time.Now().Add(wait)
	for !fact() {
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out waiting until %s", what)
		}
		time.Sleep(interval)
	}
	return nil
}

// client negotiates versions; kafka.Conn asks for a CreateTopics version that Kafka 4 has dropped.
func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(broker), Timeout: 10 * time.Second}
}

func partitionsOf(topic string) int {
	answer, err := client().Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || answer.Topics[0].Error != nil {
		return 0
	}
	return len(answer.Topics[0].Partitions)
}

func createTopic(topic string, partitions int) error {
	answer, err := client().CreateTopics(context.Background(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	return until("the topic has its partitions", func() bool { return partitionsOf(topic) == partitions })
}

func configuration(topic, group string) kq.KqConf {
	return kq.KqConf{
		ServiceConf: service.ServiceConf{Name: "conformance", Mode: service.TestMode},
		Brokers:     []string{broker},
		Group:       group,
		Topic:       topic,
		Offset:      "first",
		Conns:       1,
		Consumers:   2,
		Processors:  2,
		MinBytes:    1,
		MaxBytes:    10 << 20,
		ForceCommit: true,
	}
}

// consume starts a queue; the returned function stops it and waits until it has left its group.
func consume(conf kq.KqConf, handler *sink) (func(), error) {
	consumer, err := kq.NewQueue(conf, handler, kq.WithMaxWait(200*time.Millisecond), kq.WithCommitInterval(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return started(consumer), nil
}

func started(consumer queue.MessageQueue) func() {
	done := make(chan struct{})
	go func() {
		consumer.Start()
		close(done)
	}()
	return func() {
		consumer.Stop()
		<-done
	}
}

// push sends value-0 ... value-(count-1), and waits until the broker has them before it closes the pusher: Close
// flushes the chunk at hand, but not those that are being sent.
func push(topic string, count int, options ...kq.PushOption) error {
	pusher := kq.NewPusher([]string{broker}, topic, options...)
	before := int64(-1)
	err := until("every partition has a leader", func() bool {
		before = records(topic)
		return before >= 0
	})
	if err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		if err := pusher.PushWithKey(context.Background(), fmt.Sprintf("key-%d", i), fmt.Sprintf("value-%d", i)); err != nil {
			return err
		}
	}
	err = until("all are in the log", func() bool { return records(topic) == before+int64(count) })
	return errors.Join(err, pusher.Close())
}

// records is how many records the partitions of a topic hold, -1 while it cannot be said.
func records(topic string) int64 {
	var total int64
	for partition := range partitionsOf(topic) {
		leader, err := kafka.DialLeader(context.Background(), "tcp", broker, topic, partition)
		if err != nil {
			return -1
		}
		last, err := leader.ReadLastOffset()
		leader.Close()
		if err != nil {
			return -1
		}
		total += last
	}
	return total
}

// eachOnce says what is missing or double among value-0 ... value-(count-1).
func eachOnce(values []string, count int) error {
	seen := map[string]int{}
	for _, value := range values {
		seen[value]++
	}
	for i := 0; i < count; i++ {
		if times := seen[fmt.Sprintf("value-%d", i)]; times != 1 {
			return fmt.Errorf("value-%d was consumed %d times", i, times)
		}
	}
	if len(values) != count {
		return fmt.Errorf("%d values, not %d", len(values), count)
	}
	return nil
}

func pushAndConsume(partitions, count int, change func(*kq.KqConf), options ...kq.PushOption) (*sink, error) {
	topic := fresh("topic")
	if err := createTopic(topic, partitions); err != nil {
		return nil, err
	}
	if err := push(topic, count, options...); err != nil {
		return nil, err
	}
	conf := configuration(topic, fresh("group"))
	if change != nil {
		change(&conf)
	}
	handler := &sink{}
	stop, err := consume(conf, handler)
	if err != nil {
		return nil, err
	}
	defer stop()
	return handler, until("all are consumed", func() bool { return handler.count() >= count })
}

func pushedInChunks() error {
	handler, err := pushAndConsume(4, 2000, nil, kq.WithChunkSize(4096), kq.WithFlushInterval(20*time.Millisecond))
	if err != nil {
		return err
	}
	return eachOnce(handler.values, 2000)
}

func pushedInSync() error {
	// One consumer and one processor: kq itself keeps no order among several.
	single := func(conf *kq.KqConf) { conf.Consumers, conf.Processors = 1, 1 }
	handler, err := pushAndConsume(1, 5, single, kq.WithSyncPush())
	if err != nil {
		return err
	}
	for i, value := range handler.values {
		if value != fmt.Sprintf("value-%d", i) {
			return fmt.Errorf("%s at place %d", value, i)
		}
	}
	return nil
}

func createsTopic() error {
	topic := fresh("created")
	pusher := kq.NewPusher([]string{broker}, topic, kq.WithAllowAutoTopicCreation(), kq.WithSyncPush())
	defer pusher.Close()
	// The first answer may be that the topic is unknown: it is being created.
	err := until("it is pushed", func() bool { return pusher.Push(context.Background(), "first") == nil })
	if err != nil {
		return err
	}
	handler := &sink{}
	stop, err := consume(configuration(topic, fresh("group")), handler)
	if err != nil {
		return err
	}
	defer stop()
	return until("it is consumed", func() bool { return handler.count() == 1 })
}

func keys() error {
	handler, err := pushAndConsume(4, 200, nil, kq.WithBalancer(&kafka.Hash{}), kq.WithFlushInterval(20*time.Millisecond))
	if err != nil {
		return err
	}
	for i, key := range handler.keys {
		if strings.TrimPrefix(key, "key-") != strings.TrimPrefix(handler.values[i], "value-") {
			return fmt.Errorf("%s came with %s", key, handler.values[i])
		}
	}
	return nil
}

func shared() error {
	topic, group := fresh("shared"), fresh("group")
	if err := createTopic(topic, 4); err != nil {
		return err
	}
	handler := &sink{}
	for i := 0; i < 2; i++ {
		stop, err := consume(configuration(topic, group), handler)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := push(topic, 500, kq.WithFlushInterval(20*time.Millisecond)); err != nil {
		return err
	}
	return until("nothing is missing", func() bool { return handler.different() == 500 })
}

func broadcast() error {
	topic := fresh("broadcast")
	if err := createTopic(topic, 2); err != nil {
		return err
	}
	if err := push(topic, 100, kq.WithFlushInterval(20*time.Millisecond)); err != nil {
		return err
	}
	for i := 0; i < 2; i++ {
		handler := &sink{}
		stop, err := consume(configuration(topic, fresh("group")), handler)
		if err != nil {
			return err
		}
		err = until("all are consumed", func() bool { return handler.count() >= 100 })
		stop()
		if err = errors.Join(err, eachOnce(handler.values, 100)); err != nil {
			return err
		}
	}
	return nil
}

func resumes() error {
	topic, group := fresh("resumes"), fresh("group")
	if err := createTopic(topic, 1); err != nil {
		return err
	}
	for round := 1; round <= 2; round++ {
		if err := push(topic, 50, kq.WithFlushInterval(20*time.Millisecond)); err != nil {
			return err
		}
		handler := &sink{}
		stop, err := consume(configuration(topic, group), handler)
		if err != nil {
			return err
		}
		err = until("all are consumed", func() bool { return handler.count() >= 50 })
		err = errors.Join(err, until("all are committed", func() bool { return committed(topic, group) == int64(50*round) }))
		stop()
		if err = errors.Join(err, eachOnce(handler.values, 50)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func committed(topic, group string) int64 {
	answer, err := client().OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0}},
	})
	if err != nil || answer.Error != nil || len(answer.Topics[topic]) == 0 {
		return -1
	}
	return answer.Topics[topic][0].CommittedOffset
}

func commitsInOrder() error {
	inOrder := func(conf *kq.KqConf) { conf.CommitInOrder = true }
	handler, err := pushAndConsume(2, 300, inOrder, kq.WithFlushInterval(20*time.Millisecond))
	if err != nil {
		return err
	}
	return eachOnce(handler.values, 300)
}

func severalConnections() error {
	several := func(conf *kq.KqConf) { conf.Conns = 3 }
	handler, err := pushAndConsume(6, 300, several, kq.WithFlushInterval(20*time.Millisecond))
	if err != nil {
		return err
	}
	if handler.different() != 300 {
		return fmt.Errorf("%d different values, not 300", handler.different())
	}
	return nil
}

func topics() error {
	topic := fresh("admin")
	if err := createTopic(topic, 3); err != nil {
		return err
	}
	answer, err := client().DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	return until("the topic is gone", func() bool { return partitionsOf(topic) == 0 })
}

func offsets() error {
	topic := fresh("offsets")
	if err := createTopic(topic, 1); err != nil {
		return err
	}
	if err := push(topic, 10, kq.WithFlushInterval(20*time.Millisecond)); err != nil {
		return err
	}
	leader, err := kafka.DialLeader(context.Background(), "tcp", broker, topic, 0)
	if err != nil {
		return err
	}
	defer leader.Close()
	first, last, err := leader.ReadOffsets()
	if err != nil {
		return err
	}
	if first != 0 || last != 10 {
		return fmt.Errorf("offsets %d to %d, not 0 to 10", first, last)
	}
	return nil
}

// compacted reads a topic whole segments of which hold no records any more.
func compacted(topic, expected string) func() error {
	return func() error {
		records := strings.Split(expected, ",")
		handler := &sink{}
		stop, err := consume(configuration(topic, fresh("group")), handler)
		if err != nil {
			return err
		}
		defer stop()
		if err := until(fmt.Sprintf("%d records are read", len(records)), func() bool { return handler.count() >= len(records) }); err != nil {
			return err
		}
		handler.mutex.Lock()
		defer handler.mutex.Unlock()
		// Two workers handle them, so the order is not the topic's.
		found := append([]string(nil), handler.keys...)
		keys := make([]string, len(records))
		for i, record := range records {
			keys[i] = strings.SplitN(record, ":", 2)[1]
		}
		slices.Sort(found)
		slices.Sort(keys)
		if !slices.Equal(found, keys) {
			return fmt.Errorf("read %v, not %v", found, keys)
		}
		return nil
	}
}
