// Reads compacted topics with franz-go, from the first offset to the end; each prints PASS or FAIL.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 20 * time.Second

func read(topic string, count int) (string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BOOTSTRAP")), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return "", err
	}
	defer client.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var found []string
	for len(found) < count {
		fetches := client.PollFetches(deadline)
		if err := fetches.Err(); err != nil {
			return strings.Join(found, ","), err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found = append(found, fmt.Sprintf("%d:%s", record.Offset, record.Key))
		})
	}
	return strings.Join(found, ","), nil
}

func main() {
	failed := false
	expected := strings.Split(os.Getenv("COMPACTED_RECORDS"), ";")
	for place, topic := range strings.Split(os.Getenv("COMPACTED_TOPICS"), ",") {
		found, err := read(topic, len(strings.Split(expected[place], ",")))
		verdict := "PASS"
		if found != expected[place] || err != nil {
			failed, verdict = true, "FAIL"
		}
		fmt.Printf("%s\t%s is read to its end\n", verdict, topic)
		fmt.Fprintf(os.Stderr, "%s: read %q, error %v\n", topic, found, err)
	}
	if failed {
		os.Exit(1)
	}
}
