package coordination

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// listTopics reads all Topics at one revision, sorted by name. Unreadable ones are left out and
// named in the error; the others are returned with it.
func (c *Client) listTopics(ctx context.Context) (topics []*Topic, revision int64, err error) {
	var unreadable []error
	revision, err = c.pages(ctx, c.topicsPrefix(), func(kv *mvccpb.KeyValue) {
		t, err := c.decodeTopic(kv)
		if err != nil {
			unreadable = append(unreadable, err)
			return
		}
		topics = append(topics, t)
	})
	if err != nil {
		return nil, 0, err
	}
	return topics, revision, errors.Join(unreadable...)
}

// listSubscriptions reads all Subscriptions of a Topic at one revision, sorted by name. Unreadable
// ones are left out and named in the error; the others are returned with it.
func (c *Client) listSubscriptions(ctx context.Context, topicID string) (subscriptions []*Subscription, revision int64, err error) {
	var unreadable []error
	revision, err = c.pages(ctx, c.subscriptionsPrefix(topicID), func(kv *mvccpb.KeyValue) {
		s, err := c.decodeSubscription(kv)
		if err != nil {
			unreadable = append(unreadable, err)
			return
		}
		subscriptions = append(subscriptions, s)
	})
	if err != nil {
		return nil, 0, err
	}
	return subscriptions, revision, errors.Join(unreadable...)
}
