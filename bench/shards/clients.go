package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

func (b *bench) connect(server int) (*nats.Conn, error) {
	urls := strings.Split(b.urls, ",")
	return nats.Connect(urls[server%len(urls)], nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond), nats.DontRandomize(), nats.Name("shards"))
}

func name(topic int) string { return fmt.Sprintf("bench-%05d", topic) }

// create makes the Topics, several at a time. One that was made although its answer was lost is
// made again, which is no error.
func (b *bench) create(ctx context.Context) error {
	var next, done atomic.Int64
	var workers sync.WaitGroup
	failed := make([]error, b.creators)
	began := time.Now()
	for w := range b.creators {
		nc, err := b.connect(w)
		if err != nil {
			return err
		}
		defer nc.Close()
		workers.Go(func() {
			for failed[w] == nil && ctx.Err() == nil {
				topic := int(next.Add(1)) - 1
				if topic >= b.topics {
					return
				}
				failed[w] = b.createOne(ctx, nc, topic)
				if n := done.Add(1); n%1000 == 0 {
					b.say("%d Topics made, %.0f a second", n, float64(n)/time.Since(began).Seconds())
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}

func (b *bench) createOne(ctx context.Context, nc *nats.Conn, topic int) error {
	request := map[string]any{"stream": map[string]any{
		"name": name(topic), "subjects": []string{name(topic), name(topic) + ".>"}, "num_replicas": 3, "storage": "file", "retention": "limits", "discard": "old",
		"max_msgs": -1, "max_bytes": -1, "max_msg_size": -1, "max_consumers": -1, "max_msgs_per_subject": -1,
	}}
	if b.shards > 1 {
		request["shards"] = b.shards
	}
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	for again := time.Now().Add(b.patience / 4); ctx.Err() == nil; {
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
		var answer *nats.Msg
		answer, err = nc.RequestWithContext(limit, "$CARILLON.API.TOPIC.CREATE."+name(topic), payload)
		cancel()
		if err != nil && time.Now().After(again) {
			return fmt.Errorf("create topic %s: %w", name(topic), err)
		}
		if err != nil {
			b.retries.Add(1)
			continue
		}
		var said struct {
			Error *struct {
				Code        string `json:"code"`
				Description string `json:"description"`
			} `json:"error"`
		}
		if err = json.Unmarshal(answer.Data, &said); err != nil {
			return err
		}
		if said.Error == nil {
			return nil
		}
		if time.Now().After(again) {
			return fmt.Errorf("create topic %s: %.300s", name(topic), answer.Data)
		}
		b.retries.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}

// publish waits for the ack of a message for each of many Topics, a few hundred under way at a
// time, some times over.
func (b *bench) publish(ctx context.Context) error {
	const rounds, atOnce, maxRefused = 10, 256, 512
	var refused atomic.Int64
	topics := min(b.publishTo, b.topics)
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make([]error, atOnce)
	took := make([][]time.Duration, atOnce)
	began := time.Now()
	conns := make([]*nats.Conn, 3)
	for i := range conns {
		nc, err := b.connect(i)
		if err != nil {
			return err
		}
		defer nc.Close()
		conns[i] = nc
	}
	before := b.meters()
	for w := range atOnce {
		workers.Go(func() {
			for failed[w] == nil && ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= topics*rounds {
					return
				}
				sent := time.Now()
				// Evenly over all Topics that there are.
				subject := fmt.Sprintf("%s.%d", name(n%topics*(b.topics/topics)), n)
				answer, err := conns[w%3].Request(subject, make([]byte, 128), 10*time.Second)
				if err == nil && strings.Contains(string(answer.Data), `"error"`) {
					err = fmt.Errorf("%.200s", answer.Data)
				}
				if err != nil { // leaderships go back to whom they are meant for while this runs
					b.say("publish to %s: %v", subject, err)
					if refused.Add(1) > maxRefused {
						failed[w] = fmt.Errorf("more than %d messages were refused or not answered", maxRefused)
					}
					continue
				}
				took[w] = append(took[w], time.Since(sent))
			}
		})
	}
	workers.Wait()
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		return err
	}
	seconds := time.Since(began).Seconds()
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) == 0 {
		return errors.New("nothing was acknowledged")
	}
	b.say("PUBLISHED %d messages of 128 B to %d Topics, %d refused, %d under way at a time: %.0f acks a second, p50 %v, p99 %v, worst %v", len(all), topics, refused.Load(), atOnce,
		float64(len(all))/seconds, all[len(all)/2].Round(time.Microsecond), all[len(all)*99/100].Round(time.Microsecond), all[len(all)-1].Round(time.Microsecond))
	b.rates("PUBLISHING", before, b.meters())
	b.footprint("at the end")
	return nil
}
