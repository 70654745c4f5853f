package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

const (
	// devProbe is the interval of requests whether brokers are ready, and devProbeTimeout bounds
	// one answer.
	devProbe, devProbeTimeout = 20 * time.Millisecond, 2 * time.Second
	// devWhole is how long ready brokers may take to know each other. After that they are announced
	// all the same.
	devWhole = 10 * time.Second
	// longestAnswer bounds the size of an answer, far above that of a few members.
	longestAnswer = 1 << 20
)

// devStatus is a broker's answer about itself and the members that it knows.
type devStatus struct {
	ID          string `json:"server_id"`
	Incarnation int64  `json:"incarnation"`
	Members     []struct {
		ID          string `json:"id"`
		Incarnation int64  `json:"incarnation"`
	} `json:"members"`
	Links []struct {
		ID string `json:"id"`
		Up bool   `json:"up"`
	} `json:"links"`
}

// awaitCluster waits until all brokers are ready and know each other's present incarnations:
// otherwise one may take the replicas of another for absent. It returns false if ctx ended before.
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

// whole reports whether each of these knows the present incarnation of every other one, and has a
// link to it.
func whole(all []devStatus) bool {
	for _, a := range all {
		for _, b := range all {
			known, linked := false, a.ID == b.ID
			for _, m := range a.Members {
				known = known || m.ID == b.ID && m.Incarnation == b.Incarnation
			}
			for _, r := range a.Links {
				linked = linked || r.ID == b.ID && r.Up
			}
			if !known || !linked {
				return false
			}
		}
	}
	return true
}

// get sends a request to a broker, and reports whether it succeeded.
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
