package mirror

import (
	"cmp"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// maxDoubts bounds how much is remembered of one Topic until a pass tells it; the brokers' logs and
// metrics have all.
const maxDoubts = 16

// doubt notes that a leader was named that may lack something. What was so before this operator
// looked is not news.
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

// Doubts returns, once, what there is to tell of leaders of a Topic that may lack something.
func (m *Mirror) Doubts(topicID string) []plan.Action {
	m.mu.Lock()
	defer m.mu.Unlock()
	doubts := m.doubts[topicID]
	delete(m.doubts, topicID)
	return doubts
}
