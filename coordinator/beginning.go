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

// listedMember is a member in the list that another member serves on its peer port.
type listedMember struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// started reports whether a member has joined: only then it publishes its client addresses.
func (m listedMember) started() bool { return len(m.ClientURLs) > 0 }

func (m listedMember) is(name, peerURL string) bool {
	return m.Name == name || slices.Contains(m.PeerURLs, peerURL)
}

// way is how a member with an empty volume starts.
type way int

const (
	form   way = iota // forms the cluster with the others, for the first time
	rejoin            // rejoins the cluster that it was or is a member of
	await             // waits for a member that knows
)

// decide returns how to start with an empty volume. existed means that the operator knows of a
// cluster. lists are the answers of other members.
func decide(name, peerURL string, existed bool, lists [][]listedMember) (way, string) {
	formed := false
	for _, list := range lists {
		if !slices.ContainsFunc(list, listedMember.started) {
			continue // that one is forming the cluster itself
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
	// askTimeout bounds the answers of other members: enough for a busy node. The very first start
	// waits for all of it.
	askTimeout = 2 * time.Second
	// maxAnswer bounds a list of members; one member is about 300 bytes.
	maxAnswer = 64 << 10
)

// ask requests the list of members from all peers concurrently, and returns their answers.
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

// clientURLs returns the client addresses of the other started members.
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

// quorum is the requests to the other members that rejoining needs.
type quorum interface {
	Members(ctx context.Context) ([]coordination.Member, error)
	RemoveMember(ctx context.Context, id uint64) error
	AddLearner(ctx context.Context, peerURL string) (coordination.Member, error)
}

// readmit removes all members with our name or address, and adds this one as a learner. It returns
// etcd's --initial-cluster. A learner of an earlier attempt is removed, too, since it may have
// started under that id.
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
