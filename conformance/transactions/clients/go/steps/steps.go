// Package steps has what the Go programs of this suite share: their arguments, and one line for each step.
package steps

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	Wait   = 60 * time.Second
	End    = "end"
	values = 3 // of a transaction, in each topic
)

// Arguments are what every program of this suite is given, in whatever language it is written. Topics have one partition.
type Arguments struct {
	Bootstrap, First, Second, ID, Group string
}

// Topics are both topics.
func (given Arguments) Topics() []string {
	return []string{given.First, given.Second}
}

// Parse reads the arguments of the program.
func Parse() Arguments {
	var given Arguments
	flag.StringVar(&given.Bootstrap, "bootstrap", "", "host:port")
	flag.StringVar(&given.First, "first", "", "topic")
	flag.StringVar(&given.Second, "second", "", "topic")
	flag.StringVar(&given.ID, "id", "", "transactional id")
	flag.StringVar(&given.Group, "group", "", "group")
	flag.Parse()
	return given
}

// Reader reads a topic: all values up to End, without it.
type Reader interface {
	Read(topic string, committed bool) []string
}

// Client does what the steps need.
type Client interface {
	Reader
	// Transact sends the values of a word to both topics in one transaction, and ends it.
	Transact(values []string, commit bool)
	// SendEnd sends End to both topics, without a transaction.
	SendEnd()
	// SendOffsets commits this offset of the first topic in a transaction of the group, with a value in the second topic.
	SendOffsets(offset int64, commit bool)
	// CommittedOffset is that of the group in the first topic; -1 if there is none.
	CommittedOffset() int64
	// Fenced tells whether an open transaction cannot be committed any more after a second instance has begun.
	Fenced() bool
	// Misuse tells whether a value outside of a transaction and an end without one are refused.
	Misuse() bool
}

// Values are those of a word.
func Values(word string) []string {
	all := make([]string, values)
	for number := range all {
		all[number] = fmt.Sprintf("%s-%d", word, number)
	}
	return all
}

// Run plays all steps and prints the verdict of each.
func Run(given Arguments, client Client) {
	step("commit", func() { client.Transact(Values("committed"), true) })
	step("abort", func() {
		client.Transact(Values("aborted"), false)
		client.Transact(Values("again"), true)
		client.SendEnd()
	})
	RunReads(given, client)
	step("offsets", func() {
		client.SendOffsets(2, true)
		check(client.CommittedOffset() == 2, "the offset was not committed")
		client.SendOffsets(5, false)
		check(client.CommittedOffset() == 2, "the offset of an aborted transaction was committed")
		client.SendOffsets(3, true)
		check(client.CommittedOffset() == 3, "the second offset was not committed")
	})
	step("fenced", func() { check(client.Fenced(), "the first instance could commit") })
	step("misuse", func() {
		check(client.Misuse(), "it was not refused")
		client.Transact(Values("after misuse"), true)
	})
}

// RunReads plays the steps of a client that can only read.
func RunReads(given Arguments, client Reader) {
	for _, committed := range []bool{true, false} {
		name, words := "committed", []string{"committed", "again"}
		if !committed {
			name, words = "uncommitted", []string{"committed", "aborted", "again"}
		}
		var expected []string
		for _, word := range words {
			expected = append(expected, Values(word)...)
		}
		step(name, func() {
			for _, topic := range given.Topics() {
				found := client.Read(topic, committed)
				check(slices.Equal(found, expected), fmt.Sprint(topic, ": ", found))
			}
		})
	}
}

// Must panics with an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(fact bool, words string) {
	if !fact {
		panic(words)
	}
}

func step(name string, body func()) {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintln(os.Stderr, name, "failed:", reason)
			fmt.Printf("FAIL\t%s\n", name)
			return
		}
		fmt.Printf("PASS\t%s\n", name)
	}()
	body()
}
