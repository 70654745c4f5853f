package broker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/lapse"
	"github.com/carillon-mq/carillon/broker/live"
)

// openAttributes opens the attributes of subjects, with a connection to etcd of their own.
func (b *Broker) openAttributes() (err error) {
	b.attributes, err = coordination.OpenAttributes(coordination.Config{
		Endpoints: b.config.Endpoints, TLS: cmp.Or(b.config.EtcdTLS, b.config.TLS), Cluster: b.config.Cluster, Logger: b.log,
	}, attribute.NewStore())
	return err
}

// attributeChanges are how this broker changes attributes: whoever does so is answered after the
// queries of this and of linked brokers have the change (live invariant V3). What lapses is not
// spread: nobody publishes after it, and the watch of each broker brings it.
type attributeChanges struct {
	*coordination.Attributes
	queries *live.Server
}

// Change carries out changes, as coordination.Attributes does, and spreads them.
func (c attributeChanges) Change(ctx context.Context, changes []attribute.Change) ([]coordination.Outcome, error) {
	made, err := c.Attributes.Change(ctx, changes)
	if err == nil {
		c.queries.Spread(ctx, made)
	}
	return made, err
}

// changeRate returns how many changes of attributes this broker may make a second: its part of the
// cluster's rate.
func (b *Broker) changeRate() float64 {
	brokers := 1
	if state := b.topics.topics.State(); state != nil {
		brokers = max(len(state.Brokers), 1)
	}
	return admin.ChangeRate / float64(brokers)
}

// attributesPatience is how long a broker that starts waits until it has read the attributes of
// subjects. 64 MiB of them take about a second.
const attributesPatience = 5 * time.Second

// awaitAttributes waits until this broker has read the attributes of subjects, before it registers:
// what it appends as a leader says what these were. Without etcd it does not register either.
func (b *Broker) awaitAttributes(ctx context.Context) {
	late := time.NewTimer(attributesPatience)
	defer late.Stop()
	select {
	case <-b.attributes.Store().Ready():
	case <-late.C:
		b.log.Warn("The attributes of subjects are not read yet; what is published until then is stored without them")
	case <-ctx.Done():
	}
}

// followAttributes follows the attributes of subjects, deletes what lapses, and tells whether there
// is room for those of manifests, until ctx ends.
func (b *Broker) followAttributes(ctx context.Context) {
	controls := func() bool { return b.topics.controller.Stats().Leads }
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { b.attributes.TellFull(ctx, controls) })
	beside.Go(func() {
		lapse.Run(ctx, lapse.Config{
			Self: b.identity.ID, Process: b.self().Started.UnixMilli(), Attributes: b.attributes, Connected: b.hub.Connected,
			State: b.topics.topics.State, Controls: controls, Logger: b.log,
		})
	})
	b.attributes.Follow(ctx)
}
