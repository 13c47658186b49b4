// Package steps has what the Go programs of this suite share: their arguments, and one line for each step.
package steps

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	Partitions = 2
	Records    = 100
	Wait       = 60 * time.Second
)

// Arguments are what every program of this suite is given, in whatever language it is written.
type Arguments struct {
	Bootstrap, Protocol, CA, Certificate, Key, User, Password, Topic string
}

func Parse() Arguments {
	var given Arguments
	flag.StringVar(&given.Bootstrap, "bootstrap", "", "host:port")
	flag.StringVar(&given.Protocol, "protocol", "", "SASL_SSL or SSL")
	flag.StringVar(&given.CA, "ca", "", "PEM file of the certificate authority")
	flag.StringVar(&given.Certificate, "certificate", "", "PEM file of the client certificate")
	flag.StringVar(&given.Key, "key", "", "PEM file of its key")
	flag.StringVar(&given.User, "user", "", "user name")
	flag.StringVar(&given.Password, "password", "", "password")
	flag.StringVar(&given.Topic, "topic", "", "topic to create and delete; also the group")
	flag.Parse()
	return given
}

func (given Arguments) UsesSASL() bool {
	return given.Protocol == "SASL_SSL"
}

// WithWrongCredentials has a wrong password, or no certificate.
func (given Arguments) WithWrongCredentials() Arguments {
	given.Password = "not " + given.Password
	given.Certificate, given.Key = "", ""
	return given
}

func (given Arguments) TLS() *tls.Config {
	authority, err := os.ReadFile(given.CA)
	must(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		panic("no certificate in " + given.CA)
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
		must(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// Client is what a client can do. Each is a step, or a part of one.
type Client struct {
	Create, Describe, Consume, Delete func() error
	Refused                           func() error // succeeds if it is refused
	Send                              func(values []string) error
	Member                            func(count int) ([]string, error) // of the group: reads, commits, leaves
	Committed                         func() (int64, error)             // the offsets of the group, added up
}

func (client Client) produce() error {
	return client.Send(Numbers(0, Records))
}

func (client Client) group() error {
	for _, part := range [][]string{Numbers(0, Records), Numbers(Records, 1)} {
		if len(part) == 1 {
			if err := client.Send(part); err != nil {
				return err
			}
		}
		found, err := client.Member(len(part))
		if err == nil {
			err = Same(part, found)
		}
		if err != nil {
			return err
		}
	}
	sum, err := client.Committed()
	if err == nil {
		err = Equal(int64(Records+1), sum)
	}
	return err
}

// Run runs the steps one after another; each prints PASS or FAIL.
func Run(client Client) {
	failed := false
	for _, step := range []struct {
		name string
		body func() error
	}{
		{"create", client.Create}, {"describe", client.Describe}, {"produce", client.produce},
		{"consume", client.Consume}, {"group", client.group}, {"delete", client.Delete}, {"refused", client.Refused},
	} {
		verdict := "PASS"
		began := time.Now()
		if err := step.body(); err != nil {
			failed, verdict = true, "FAIL"
			fmt.Fprintf(os.Stderr, "%s: %v\n", step.name, err)
		}
		fmt.Printf("%s\t%s\n", verdict, step.name)
		fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(began).Seconds(), step.name)
	}
	if failed {
		os.Exit(1)
	}
}

// Numbers are `count` values from `first` on, sorted as text.
func Numbers(first, count int) []string {
	var values []string
	for number := first; number < first+count; number++ {
		values = append(values, strconv.Itoa(number))
	}
	slices.Sort(values)
	return values
}

// Same compares what was read with what was written, in any order.
func Same(expected, found []string) error {
	slices.Sort(found)
	if !slices.Equal(expected, found) {
		return fmt.Errorf("expected %v, got %v", expected, found)
	}
	return nil
}

func Equal[T comparable](expected, found T) error {
	if expected != found {
		return fmt.Errorf("expected %v, got %v", expected, found)
	}
	return nil
}

// Until waits for a fact, with a deadline.
func Until(what string, fact func() (bool, error)) error {
	for deadline := time.Now().Add(Wait); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if done, err := fact(); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("timed out waiting until %s", what)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
