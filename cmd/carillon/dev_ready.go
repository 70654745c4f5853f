package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

const (
	// devProbe is how often brokers are asked whether they are ready, and devProbeTimeout how long
	// one answer may take.
	devProbe, devProbeTimeout = 20 * time.Millisecond, 2 * time.Second
	// devWhole is how long brokers that are ready may take to hear of each other before clients are
	// told of them all the same.
	devWhole = 10 * time.Second
	// longestAnswer bounds what is read of one: far more than the few members take.
	longestAnswer = 1 << 20
)

// devStatus is what a broker says of itself, and of those that it knows.
type devStatus struct {
	ID          string `json:"server_id"`
	Incarnation int64  `json:"incarnation"`
	Members     []struct {
		ID          string `json:"id"`
		Incarnation int64  `json:"incarnation"`
	} `json:"members"`
	Routes []struct {
		ID string `json:"id"`
		Up bool   `json:"up"`
	} `json:"routes"`
}

// awaitCluster waits until all brokers are ready, and know each other as they are now: what was
// one's before may otherwise seem to be away to another. It says false if ctx ended before.
func awaitCluster(ctx context.Context, brokers []*devBroker) bool {
	client := &http.Client{Timeout: devProbeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	again := time.NewTicker(devProbe)
	defer again.Stop()
	var late time.Time
	for {
		all := make([]devStatus, 0, len(brokers))
		for _, b := range brokers {
			if b.get(ctx, client, "/healthz/ready", nil) {
				b.ready.Store(true)
				var is devStatus
				if b.get(ctx, client, "/varz", &is) {
					all = append(all, is)
				}
			}
		}
		if len(all) == len(brokers) {
			if late.IsZero() {
				late = time.Now().Add(devWhole)
			}
			if whole(all) || time.Now().After(late) {
				return ctx.Err() == nil
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// whole reports whether each of these knows every other one in its present life, and has a link to
// it.
func whole(all []devStatus) bool {
	for _, a := range all {
		for _, b := range all {
			known, linked := false, a.ID == b.ID
			for _, m := range a.Members {
				known = known || m.ID == b.ID && m.Incarnation == b.Incarnation
			}
			for _, r := range a.Routes {
				linked = linked || r.ID == b.ID && r.Up
			}
			if !known || !linked {
				return false
			}
		}
	}
	return true
}

// get asks a broker, and says whether it answered well.
func (b *devBroker) get(ctx context.Context, client *http.Client, path string, to any) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.http+path, nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return false
	}
	return to == nil || json.NewDecoder(io.LimitReader(answer.Body, longestAnswer)).Decode(to) == nil
}
