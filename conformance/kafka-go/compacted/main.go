// Reads compacted topics with kafka-go's Reader, from the first offset to the end; each prints PASS or FAIL.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const wait = 20 * time.Second

func read(topic string, count int) (string, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Getenv("BOOTSTRAP")}, Topic: topic, Partition: 0, MaxBytes: 10 << 20,
		MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var found []string
	for len(found) < count {
		message, err := reader.ReadMessage(deadline)
		if err != nil {
			return strings.Join(found, ","), err
		}
		found = append(found, fmt.Sprintf("%d:%s", message.Offset, message.Key))
	}
	return strings.Join(found, ","), nil
}

func main() {
	failed := false
	expected := strings.Split(os.Getenv("COMPACTED_RECORDS"), ";")
	for place, topic := range strings.Split(os.Getenv("COMPACTED_TOPICS"), ",") {
		found, err := read(topic, len(strings.Split(expected[place], ",")))
		verdict := "PASS"
		if found != expected[place] {
			failed, verdict = true, "FAIL"
		}
		fmt.Printf("%s\t%s is read to its end\n", verdict, topic)
		fmt.Fprintf(os.Stderr, "%s: read %q, error %v\n", topic, found, err)
	}
	if failed {
		os.Exit(1)
	}
}
