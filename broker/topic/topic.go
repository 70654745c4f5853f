package topic

import "github.com/carillon-mq/carillon/broker/coordination"

// Topic is one of the cluster's, as this broker sees it.
type Topic struct {
	id, name string
}

// Name is the Topic's name.
func (t *Topic) Name() string { return t.name }

// ID is the Topic's id, which is its own for ever.
func (t *Topic) ID() string { return t.id }

// Desired is what is asked for. It belongs to all its readers.
func (t *Topic) Desired() *coordination.Topic { return nil }

// Leader is the id of the broker that leads the shard, or empty.
func (t *Topic) Leader() string { return "" }

// Shard is the one that is open and led here, or nil.
func (t *Topic) Shard() *Shard { return nil }

// WhyNot says why the Topic is not served here, or at all: a *NotServedError. It is nil if it is served here.
func (t *Topic) WhyNot() error { return nil }
