//go:build e2e && linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// changeTime bounds a change of members beside other faults: etcd may be without a quorum all the
// time.
func changeTime() time.Duration { return patience + quorumless }

// ask sends a request of the admin API to any broker.
func ask[T any](c *cluster, subject string, request any) (T, error) {
	return askBy[T](c.nc, subject, request)
}

// askBy sends a request of the admin API to the broker of a connection. Beside an error that the
// broker answers is the rest of the answer.
func askBy[T any](nc *nats.Conn, subject string, request any) (answer T, err error) {
	var data []byte
	if request != nil {
		if data, err = json.Marshal(request); err != nil {
			return answer, err
		}
	}
	m, err := nc.Request(subject, data, answerTime)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", subject, err)
	}
	var refused struct{ Error *admin.Error }
	if err := errors.Join(json.Unmarshal(m.Data, &refused), json.Unmarshal(m.Data, &answer)); err != nil {
		return answer, fmt.Errorf("%s: %w", subject, err)
	}
	if refused.Error != nil {
		return answer, fmt.Errorf("%s: %w", subject, refused.Error)
	}
	return answer, nil
}

// member returns a broker as the others list it.
func (c *cluster) member(is func(m admin.Member) bool) (*admin.Member, error) {
	list, err := ask[admin.BrokerList](c, admin.BrokerListSubject, nil)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Brokers, is)
	if at < 0 {
		return nil, nil
	}
	return &list.Brokers[at], nil
}

func (c *cluster) memberAt(node int) (*admin.Member, error) {
	m, err := c.member(func(m admin.Member) bool { return m.Name == nodeName(node) && !m.Away })
	if err == nil && m == nil {
		err = fmt.Errorf("%s is no member", nodeName(node))
	}
	return m, err
}

// even returns an error unless all expected brokers are present and hold about equally many
// replicas. Then no replica is about to move.
func (c *cluster) even() error {
	list, err := ask[admin.BrokerList](c, admin.BrokerListSubject, nil)
	if err != nil {
		return err
	}
	var told, names, due []string
	var holds []int
	for _, m := range list.Brokers {
		told = append(told, fmt.Sprintf("%s holds %d, away %v, drain %q", m.Name, m.Holds, m.Away, m.Drain))
		if !m.Away && m.Drain == "" {
			names, holds = append(names, m.Name), append(holds, m.Holds)
		}
	}
	for _, n := range c.there() {
		due = append(due, nodeName(n))
	}
	slices.Sort(names)
	if len(names) != len(list.Brokers) || !slices.Equal(names, due) || slices.Max(holds)-slices.Min(holds) > 1 {
		return fmt.Errorf("the brokers are to be %v: %s", due, strings.Join(told, "; "))
	}
	return nil
}

// join starts a broker that was not present.
func (c *cluster) join(s Step) error {
	n := s.Nodes[0]
	p := c.processes[n]
	if s.Fresh {
		if err := os.RemoveAll(filepath.Join(p.volume.Path(), "data")); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.members[n] = true
	c.flipped[n] = c.flipped[n] && !s.Fresh
	c.mu.Unlock()
	if err := p.start(); err != nil {
		return err
	}
	return within(changeTime(), nodeName(n)+" joins", func() error {
		_, err := c.memberAt(n)
		return err
	})
}

// leave drains a broker, and stops it when it holds nothing.
func (c *cluster) leave(s Step) error {
	n := s.Nodes[0]
	p := c.processes[n]
	var id string
	err := within(changeTime(), nodeName(n)+" is drained", func() error {
		m, err := c.memberAt(n)
		if err != nil {
			return err
		}
		id = m.ID
		_, err = ask[admin.BrokerInfo](c, admin.BrokerDrainSubject+id, admin.DrainRequest{Mode: coordination.DrainAll})
		return err
	})
	if err != nil {
		return err
	}
	c.note("%s is to hold nothing any more", nodeName(n))
	if s.Killed {
		time.Sleep(s.For)
		p.kill()
		if err := p.start(); err != nil {
			return err
		}
	}
	byID := func(m admin.Member) bool { return m.ID == id }
	err = within(changeTime(), nodeName(n)+" holds nothing any more", func() error {
		m, err := c.member(byID)
		switch {
		case err != nil || m == nil:
			return err
		case m.Leads+m.Holds > 0 || m.Drain != coordination.DrainAll:
			return fmt.Errorf("it leads %d shards and holds %d replicas, drain %q; %s", m.Leads, m.Holds, m.Drain, m.Why)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.members[n] = false
	c.mu.Unlock()
	if err := p.stop(); err != nil {
		return err
	}
	// A broker that comes back may get replicas again. Before it has left, it would get them at
	// once.
	return within(changeTime(), nodeName(n)+" has left", func() error {
		m, err := c.member(byID)
		if err != nil || m == nil {
			return err
		}
		if !m.Away {
			return errors.New("it is a member still")
		}
		_, err = ask[admin.BrokerInfo](c, admin.BrokerUndrainSubject+id, nil)
		return err
	})
}

// settled waits until each log stands on as many brokers as it has replicas: the copies of moved
// replicas are deleted.
func (c *cluster) settled() error {
	return within(patience, fmt.Sprintf("each log stands on %d brokers", replicas), func() error {
		on := map[string][]string{}
		for _, n := range c.there() {
			logs, err := os.ReadDir(filepath.Join(c.processes[n].volume.Path(), "data", "shards"))
			if err != nil {
				return err
			}
			for _, l := range logs {
				on[l.Name()] = append(on[l.Name()], nodeName(n))
			}
		}
		for name, brokers := range on {
			if len(brokers) != replicas {
				return fmt.Errorf("log %s stands on %v", name, brokers)
			}
		}
		return nil
	})
}
