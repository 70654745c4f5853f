package coordinator

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// listedMember is a member as another one lists it on its peer port.
type listedMember struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// started: a member publishes its client addresses when it has joined.
func (m listedMember) started() bool { return len(m.ClientURLs) > 0 }

func (m listedMember) is(name, peerURL string) bool {
	return m.Name == name || slices.Contains(m.PeerURLs, peerURL)
}

// way is how a member with an empty volume is to begin.
type way int

const (
	form   way = iota // the cluster, with the others, for the first time
	rejoin            // the cluster that it was or is a member of
	await             // somebody who knows
)

// decide is what to do with an empty volume. existed: the operator says that there was a
// cluster. lists are the members as each other member that answered knows them.
func decide(name, peerURL string, existed bool, lists [][]listedMember) (way, string) {
	formed := false
	for _, list := range lists {
		if !slices.ContainsFunc(list, listedMember.started) {
			continue // itself just forming
		}
		formed = true
		mine := slices.IndexFunc(list, func(m listedMember) bool { return m.is(name, peerURL) })
		switch {
		case mine < 0:
			return rejoin, "the cluster exists without this member"
		case list[mine].started():
			return rejoin, "this member was part of the cluster, and its volume is empty"
		case list[mine].Name == "" || list[mine].IsLearner:
			return rejoin, "an earlier attempt to rejoin did not get to its end"
		}
	}
	switch {
	case existed && formed:
		return rejoin, "the cluster has existed before, and this volume is empty"
	case existed:
		return await, "the cluster has existed before, this volume is empty, and no other member answers"
	default:
		return form, "no cluster has existed"
	}
}

const (
	// askTimeout is how long the other members have to answer: enough to connect and to be
	// answered by a busy node; all that a first start waits when it is the first of all.
	askTimeout = 2 * time.Second
	// maxAnswer bounds a list of members; one member is about 300 bytes.
	maxAnswer = 64 << 10
)

// ask asks all peers at once who the members are, and returns the answers there were.
func ask(ctx context.Context, peerURLs []string, config *tls.Config) (lists [][]listedMember, errs error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, url := range peerURLs {
		asked.Go(func() {
			list, err := askOne(ctx, client, url)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = errors.Join(errs, err)
				return
			}
			lists = append(lists, list)
		})
	}
	asked.Wait()
	return lists, errs
}

func askOne(ctx context.Context, client *http.Client, peerURL string) ([]listedMember, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, peerURL+"/members", nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", peerURL, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", peerURL, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: it answers %s", peerURL, answer.Status)
	}
	var list []listedMember
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&list); err != nil {
		return nil, fmt.Errorf("ask %s: %w", peerURL, err)
	}
	return list, nil
}

// clientURLs are where the members that were started, but for this one, answer clients.
func clientURLs(lists [][]listedMember, name, peerURL string) []string {
	var urls []string
	for _, list := range lists {
		for _, m := range list {
			if !m.is(name, peerURL) && !m.IsLearner {
				urls = append(urls, m.ClientURLs...)
			}
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// quorum is what rejoining asks of the other members.
type quorum interface {
	Members(ctx context.Context) ([]coordination.Member, error)
	RemoveMember(ctx context.Context, id uint64) error
	AddLearner(ctx context.Context, peerURL string) (coordination.Member, error)
}

// readmit has the quorum forget whatever it knows by our name or address, and take us as a
// learner; it returns the members to start with. A learner that an earlier attempt added
// is removed too: whether it ever started under that id can't be known from here.
func readmit(ctx context.Context, q quorum, name, peerURL string) (cluster string, err error) {
	members, err := q.Members(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if m.Name == name || slices.Contains(m.PeerURLs, peerURL) {
			if err := q.RemoveMember(ctx, m.ID); err != nil {
				return "", err
			}
		}
	}
	added, err := q.AddLearner(ctx, peerURL)
	if err != nil {
		return "", err
	}
	if members, err = q.Members(ctx); err != nil {
		return "", err
	}
	var items []string
	for _, m := range members {
		label := m.Name
		switch {
		case m.ID == added.ID:
			label = name
		case label == "":
			label = fmt.Sprintf("unstarted-%x", m.ID) // etcd compares addresses only
		}
		for _, url := range m.PeerURLs {
			items = append(items, label+"="+url)
		}
	}
	return strings.Join(items, ","), nil
}
