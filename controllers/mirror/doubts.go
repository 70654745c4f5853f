package mirror

import (
	"cmp"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// maxDoubts bounds the actions that are kept of one Topic until a pass reports them. The brokers'
// logs and metrics have all of them.
const maxDoubts = 16

// doubt keeps the election of a leader that may lack acknowledged records. Elections from before
// this operator started are not reported.
func (m *Mirror) doubt(c coordination.Change[coordination.Shard]) {
	if c.Before == nil || c.After.Doubt.Epoch <= c.Before.Doubt.Epoch {
		return
	}
	leader := cmp.Or(m.NameOf(c.After.Doubt.Leader), c.After.Doubt.Leader)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doubts == nil {
		m.doubts = map[string][]plan.Action{}
	}
	if of := m.doubts[c.After.Topic]; len(of) < maxDoubts {
		m.doubts[c.After.Topic] = append(of, plan.Doubted(c.After, leader))
	}
}

// Doubts returns and removes the kept elections of leaders of a Topic that may lack acknowledged
// records.
func (m *Mirror) Doubts(topicID string) []plan.Action {
	m.mu.Lock()
	defer m.mu.Unlock()
	doubts := m.doubts[topicID]
	delete(m.doubts, topicID)
	return doubts
}
