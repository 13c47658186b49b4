// kafka-go: it has no transactional producer, so it only reads what another client wrote.
package main

import (
	"context"

	"github.com/segmentio/kafka-go"
	"zhumq/conformance/transactions/steps"
)

type client struct {
	given steps.Arguments
}

func (one client) Read(topic string, committed bool) []string {
	level := kafka.ReadUncommitted
	if committed {
		level = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{one.given.Bootstrap}, Topic: topic, IsolationLevel: level})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), steps.Wait)
	defer cancel()
	var found []string
	for {
		message, err := reader.ReadMessage(ctx)
		steps.Must(err)
		if string(message.Value) == steps.End {
			return found
		}
		// It delivers markers as messages: a version and the coordinator's epoch.
		if marker := len(message.Value) == 6 && message.Value[0] == 0; !marker {
			found = append(found, string(message.Value))
		}
	}
}

func main() {
	given := steps.Parse()
	steps.RunReads(given, client{given: given})
}
