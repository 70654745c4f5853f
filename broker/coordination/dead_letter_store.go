package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// deadLetterTopics bounds the Topics through which dead letters may go: a transaction of etcd has
// at most 128 comparisons, and each Topic takes two.
const deadLetterTopics = 48

// deadLetterPath returns the comparisons under which no dead letters come back to topic if they go
// into the Topic into: the Topics that these may reach, and their Subscriptions, are as they were
// read. So of Subscriptions that are written at the same moment, and that make a circle together,
// the last one is refused. An earlier check of a State may be behind.
func (c *Client) deadLetterPath(ctx context.Context, what, topic, into string) ([]clientv3.Cmp, error) {
	if into == "" {
		return nil, nil
	}
	var when []clientv3.Cmp
	var topics []*Topic
	var subscriptions []*Subscription
	seen := map[string]bool{into: true, topic: true}
	for next := []string{into}; len(next) > 0; next = next[1:] {
		t, err := c.GetTopic(ctx, next[0])
		var none *NotFoundError
		switch {
		case errors.As(err, &none):
			when = append(when, clientv3.Compare(clientv3.CreateRevision(c.topicKey(next[0])), "=", 0))
			continue
		case err != nil:
			return nil, err
		case len(topics) == deadLetterTopics:
			return nil, &InvalidError{what, fmt.Sprintf("its dead letters may go through more than %d topics (name another topic for them)", deadLetterTopics)}
		}
		of := c.subscriptionsPrefix(t.ID)
		revision, err := c.pages(ctx, of, func(kv *mvccpb.KeyValue) {
			s, err := c.decodeSubscription(kv)
			if err != nil || s.Spec.DeadLetter == "" {
				return // of a later version; its writer checks it
			}
			subscriptions = append(subscriptions, s)
			if to := s.Spec.DeadLetter; !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		})
		if err != nil {
			return nil, err
		}
		topics = append(topics, t)
		when = append(when,
			clientv3.Compare(clientv3.CreateRevision(c.topicKey(t.Name)), "=", t.Made),
			clientv3.Compare(clientv3.ModRevision(of), "<", revision+1).WithPrefix())
	}
	if cycle := NewState(0, nil, topics, nil, subscriptions).DeadLetterCycle(topic, into, nil); cycle != nil {
		return nil, &InvalidError{what, fmt.Sprintf("dead letters would come back for ever, by the topics %s (name another topic for them)", strings.Join(cycle, ", "))}
	}
	return when, nil
}
