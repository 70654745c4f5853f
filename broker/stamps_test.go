package broker

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestMessagesAreStoredWithAttributesThatWereJustSet: a message that is published through the same
// broker after the answer to a change of its subject's attributes is stored with them, whichever
// broker leads its shard.
func TestMessagesAreStoredWithAttributesThatWereJustSet(t *testing.T) {
	t.Parallel()
	endpoints := startEtcd(t)
	brokers := []*linked{startLinked(t, endpoints, "a", ""), startLinked(t, endpoints, "b", "")}
	awaitLinks(t, brokers...)
	const shards, each = 4, 60
	js, err := jetstream.New(brokers[0].connect())
	testutil.Must(t, err)
	for n := range shards { // streams of one shard, whose leaders are spread
		testutil.Eventually(t, "the stream is made", func() error {
			_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: fmt.Sprint("s", n), Subjects: []string{fmt.Sprintf("s%d.>", n)}})
			return err
		})
	}
	missed := 0
	for i, b := range brokers {
		nc := b.connect()
		p := publisher{t, nc}
		own, err := jetstream.New(nc)
		testutil.Must(t, err)
		for n := range shards * each / len(brokers) {
			subject := fmt.Sprintf("s%d.%d.%d", n%shards, i, n)
			p.set(subject, fmt.Sprint("before ", n))
			p.set(subject, subject)
			testutil.Eventually(t, "the message is stored", func() error {
				_, err := own.Publish(t.Context(), subject, []byte(subject), jetstream.WithMsgID(subject))
				return err
			})
		}
	}
	late := 0
	for _, b := range brokers {
		late += b.count("carillon_queries_late_total")
	}
	for n := range shards {
		r, err := client.NewReader(brokers[1].connect(), fmt.Sprint("s", n), 0, 0, client.ReaderOptions{Full: true, Attributes: true})
		testutil.Must(t, err)
		for range each {
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
			record, err := r.Next(ctx)
			cancel()
			testutil.Must(t, err)
			if string(record.Attributes) != fmt.Sprintf(`{"kind":%q}`, record.Data) {
				missed++
				if late == 0 {
					t.Errorf("%s was stored with %s", record.Data, record.Attributes)
				}
			}
		}
		r.Close()
	}
	if missed > late {
		t.Errorf("%d messages were stored with other attributes, and %d changes were answered before all brokers had them", missed, late)
	}
	leads := map[string]bool{}
	for n := range shards {
		testutil.Eventually(t, "a stream is told of", func() error {
			stream, err := js.Stream(t.Context(), fmt.Sprint("s", n))
			if err == nil {
				leads[stream.CachedInfo().Cluster.Leader] = true
			}
			return err
		})
	}
	if len(leads) != len(brokers) {
		t.Errorf("all shards are led by %v", leads)
	}
}
