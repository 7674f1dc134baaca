package streams

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// elected is where JetStream tells that a stream or a consumer has a new leader.
const elected = "$JS.EVENT.ADVISORY.%s.LEADER_ELECTED.%s"

// OnStreamElection calls back with the name of a stream that has a new leader. What was asked of it or published while it had none is lost without a word, and is
// to be sent again. A single server elects nobody.
func OnStreamElection(nc *nats.Conn, heard func(stream string)) (*nats.Subscription, error) {
	return onElection(nc, "STREAM", "*", heard)
}

// OnConsumerElection calls back when a consumer has a new leader: pulls that were sent while it had none are lost without a word.
func OnConsumerElection(nc *nats.Conn, stream, consumer string, heard func()) (*nats.Subscription, error) {
	return onElection(nc, "CONSUMER", stream+"."+consumer, func(string) { heard() })
}

func onElection(nc *nats.Conn, kind, names string, heard func(last string)) (*nats.Subscription, error) {
	sub, err := nc.Subscribe(fmt.Sprintf(elected, kind, names), func(m *nats.Msg) { heard(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]) })
	if err != nil {
		return nil, fmt.Errorf("subscribe to elections: %w", err)
	}
	return sub, nil
}

// electionsOf is where elections of a stream's consumers are told, up to the consumer's name.
func electionsOf(stream string) string { return fmt.Sprintf(elected, "CONSUMER", stream+".") }
