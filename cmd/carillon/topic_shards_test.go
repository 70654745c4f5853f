package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestShardsFromTheCommandLine: a Topic with several shards is created, filled, shown, read and
// deleted as one, and each shard has a line.
func TestShardsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.fails(2, "choose 1 to 64", "topic create clicks --shards 65")
	s.prints("topic clicks keeps clicks, clicks.> in 4 shards\n", "topic create clicks --shards 4 --partition-tokens 2")
	// It exists, with just these settings.
	s.prints("topic clicks keeps clicks, clicks.> in 4 shards\n", "topic create clicks --shards 4 --partition-tokens 2")
	for _, other := range []string{"--shards 3 --partition-tokens 2", "--shards 4", "--shards 4 --partition-tokens 1"} {
		s.fails(1, "with other settings", "topic create clicks "+other)
	}
	s.fails(1, "how the shards of a Topic are named", "topic create clicks--1")
	for user := range 12 {
		for n := range 5 {
			s.does(fmt.Sprintf("pub --ack clicks.u%d.page%d", user, n), fmt.Sprintf("u%d %d", user, n))
		}
	}
	if got := read[struct {
		Topics []topicView `json:"topics"`
	}](s, "topic list").Topics; len(got) != 1 || len(got[0].Shards) != 4 || got[0].Numbers == nil || got[0].Numbers.Messages != 60 {
		t.Errorf("listed as %+v", got)
	}
	shown := read[topicView](s, "topic show clicks")
	sum := uint64(0)
	for _, shard := range shown.ShardNumbers {
		if shard == nil || shard.Messages > 0 && (shard.First != 1 || shard.Last != shard.Messages) {
			t.Fatalf("a shard is shown as %+v", shard)
		}
		sum += shard.Messages
	}
	if len(shown.ShardNumbers) != 4 || sum != 60 || shown.Spec.Shards != 4 {
		t.Errorf("shown as %+v", shown)
	}
	if len(shown.Copies) != 1 || len(shown.Copies[0].Copies) != 4 {
		t.Errorf("its copies are %+v", shown.Copies)
	}
	text := s.does("topic show clicks")
	for _, want := range []string{"4, by the tokens of subjects at 2", "Shard 3", "epoch 1; "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}

	lines := strings.Fields(strings.ReplaceAll(s.does("topic tail clicks --from earliest --no-follow --raw"), " ", "/"))
	if len(lines) != 60 {
		t.Fatalf("%d messages were printed", len(lines))
	}
	for user := range 12 { // each user's are in one shard, and in order
		var got []string
		for _, line := range lines {
			if strings.HasPrefix(line, fmt.Sprintf("u%d/", user)) {
				got = append(got, line[len(line)-1:])
			}
		}
		if !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
			t.Errorf("of user %d: %q", user, got)
		}
	}
	if lines := strings.Fields(s.does("topic tail clicks --from earliest --count 7 --output raw")); len(lines) != 14 {
		t.Errorf("of 7 messages: %q", lines)
	}
	s.fails(2, "carillon topic tail clicks--0", "topic tail clicks --from 3")
	s.does("topic tail clicks--0 --from 1 --no-follow")

	s.does("subscription create clicks billing --start earliest")
	if got := read[subscriptionView](s, "subscription show clicks billing"); got.Numbers == nil || got.Numbers.Lag != 60 {
		t.Errorf("the subscription is shown as %+v", got.Numbers)
	}
	js, err := jetstream.New(connect(t, dev.url), jetstream.WithDefaultTimeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	passing, err := js.CreateConsumer(t.Context(), "clicks", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.does("subscription list clicks"); !strings.Contains(got, "billing") || strings.Contains(got, passing.CachedInfo().Name) {
		t.Errorf("listed are\n%s", got)
	}
	if got := s.does("subscription list clicks --all"); !strings.Contains(got, "billing") || !strings.Contains(got, passing.CachedInfo().Name) || !strings.Contains(got, "temporary") {
		t.Errorf("of all, listed are\n%s", got)
	}
	if got := read[topicView](s, "topic show clicks"); got.Subscriptions != 1 {
		t.Errorf("%d subscriptions are counted", got.Subscriptions)
	}
	s.does("subscription tail clicks billing --ack --count 20")
	if got := read[subscriptionView](s, "subscription show clicks billing"); got.Numbers == nil || got.Numbers.Lag != 40 || got.Numbers.Pending != 0 {
		t.Errorf("after 20 it is shown as %+v", got.Numbers)
	}
	if got := strings.Count(s.does("subscription tail clicks billing --no-follow --output raw"), "\n"); got != 40 {
		t.Errorf("%d are left", got)
	}
	s.does("topic delete clicks --yes")
	s.fails(1, "there is no topic", "topic show clicks")
}
