package jetstream

import (
	"context"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
)

// listed is a stream of a list: a shard's, or that of a Topic with several shards.
type listed struct {
	name string
	keys []string // of all its shards
}

// streams returns the streams that match the request, sorted by name, so that pages follow each
// other. A Topic with several shards is one stream; with parts, each of its shards is a stream,
// too.
func (s *Server) streams(request *jsapi.PageRequest, parts bool) []listed {
	var all []listed
	for t := range s.state().Topics() {
		if t.Deleting || !mayHave(t, request.Subject) {
			continue
		}
		var keys []string
		for n := range max(t.Spec.Shards, 1) {
			keys = append(keys, coordination.ShardKey(t.ID, n))
			if parts || t.Spec.Shards <= 1 {
				all = append(all, listed{coordination.ShardName(t, n), []string{keys[n]}})
			}
		}
		if len(keys) > 1 {
			all = append(all, listed{t.Name, keys})
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return all
}

// mayHave reports whether a stream may have messages on a subject.
func mayHave(t *coordination.Topic, filter string) bool {
	return filter == "" || slices.ContainsFunc(t.Spec.Subjects, func(s string) bool { return subject.Overlap(s, filter) })
}

func (s *Server) streamNames(c *call) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	// A client that looks up the stream of a subject needs exactly one.
	parts := request.Subject == ""
	page, paged := jsapi.Page(s.streams(&request, parts), request.Offset, jsapi.NamesPage)
	names := make([]string, 0, len(page))
	for _, t := range page {
		names = append(names, t.name)
	}
	s.answer(c, jsapi.StreamNamesResponse{Response: c.Call.Answer(), Paged: paged, Streams: names})
}

// streamList describes the streams that this broker leads and requests the others from their
// leaders. Streams without a reachable leader are listed as missing and not counted in total,
// because clients request pages until they have total streams.
func (s *Server) streamList(ctx context.Context, c *call) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	response := jsapi.StreamListResponse{Response: c.Call.Answer(), Streams: []*jsapi.StreamInfo{}}
	var served []listed
	for _, one := range s.streams(&request, true) {
		if s.reachable(one) {
			served = append(served, one)
		} else {
			response.Missing = append(response.Missing, one.name)
		}
	}
	page, paged := jsapi.Page(served, request.Offset, jsapi.ListPage)
	known := make(map[string]*jsapi.StreamInfo, len(page))
	elsewhere := make(map[string][]string)
	seen := make(map[string]bool, len(page))
	for _, one := range page {
		for _, key := range one.keys {
			t := s.topics.ShardByKey(key)
			if t == nil || seen[key] {
				continue
			}
			seen[key] = true
			if info := s.describeLed(key); info != nil {
				known[key] = info
			} else if leader := t.Leader(); leader != s.config.Self {
				elsewhere[leader] = append(elsewhere[leader], key)
			}
		}
	}
	if len(elsewhere) > 0 {
		s.askStreams(ctx, elsewhere, known)
	}
	size, silent := 0, 0
	for _, one := range page {
		info := s.describeListed(one, known)
		if info == nil {
			response.Missing = append(response.Missing, one.name)
			silent++
			continue
		}
		if size += info.Size(); size > listBytes && len(response.Streams) > 0 {
			break
		}
		response.Streams = append(response.Streams, info)
	}
	paged.DropMissing(silent, len(response.Streams))
	response.Paged = paged
	s.answer(c, response)
}

// describeListed returns the info of a stream, or nil if a shard's info is missing.
func (s *Server) describeListed(one listed, known map[string]*jsapi.StreamInfo) *jsapi.StreamInfo {
	if len(one.keys) == 1 {
		return known[one.keys[0]]
	}
	shards := make([]*jsapi.StreamInfo, 0, len(one.keys))
	for _, key := range one.keys {
		if known[key] == nil {
			return nil
		}
		shards = append(shards, known[key])
	}
	first := s.topics.ShardByKey(one.keys[0])
	if first == nil {
		return nil
	}
	return s.sumShards(first.Desired(), shards)
}

// reachable reports whether the leaders of all shards of a stream are registered, so that they can
// be asked.
func (s *Server) reachable(one listed) bool {
	for _, key := range one.keys {
		if t := s.topics.ShardByKey(key); t == nil || !s.leaderReachable(t) {
			return false
		}
	}
	return true
}

func (s *Server) leaderReachable(t *topic.Shard) bool {
	leader := t.Leader()
	if leader == s.config.Self {
		return t.Led() != nil
	}
	_, member := s.state().Broker(leader)
	return member
}

// usage is what one broker serves of the account: the storage of the streams that it leads in
// bytes, their consumers without a durable name, and its API calls.
type usage struct {
	Memory, Storage uint64
	Ephemerals      int
	Calls, Errors   uint64
}

func (u *usage) add(other usage) {
	u.Memory += other.Memory
	u.Storage += other.Storage
	u.Ephemerals += other.Ephemerals
	u.Calls += other.Calls
	u.Errors += other.Errors
}

func (s *Server) ownUsage() (u usage) {
	u.Calls, u.Errors = s.calls.Load(), s.errors.Load()
	subs := s.config.Subscriptions()
	for _, t := range s.topics.Shards() {
		shard := t.Led()
		if shard == nil {
			continue
		}
		bytes := uint64(max(shard.Info().Bytes, 0))
		if t.Desired().Spec.Durability == coordination.Memory {
			u.Memory += bytes
		} else {
			u.Storage += bytes
		}
		for _, sub := range subs.List(t.Key()) {
			if sub.Ephemeral() {
				u.Ephemerals++
			}
		}
	}
	return u
}

// Served is what this broker serves of JetStream: the shards that it leads, in messages and bytes,
// and its API calls.
type Served struct {
	Memory, Storage                 uint64
	ReservedMemory, ReservedStorage uint64 // max_bytes of the streams
	Streams, Consumers, Replicated  int    // Replicated streams have other replicas
	Messages                        uint64
	Level                           int // of the API
	Calls, Errors                   uint64
}

// Served returns what this broker serves.
func (s *Server) Served() Served {
	is := Served{Level: jsapi.APILevel, Calls: s.calls.Load(), Errors: s.errors.Load()}
	subs := s.config.Subscriptions()
	state := s.state()
	for _, t := range s.topics.Shards() {
		shard := t.Led()
		if shard == nil {
			continue
		}
		info, spec := shard.Info(), &t.Desired().Spec
		is.Streams++
		is.Consumers += len(subs.List(t.Key()))
		is.Messages += info.Messages
		if placed := state.Shard(t.ID(), t.Number()); placed != nil && len(placed.Replicas) > 1 {
			is.Replicated++
		}
		used, reserved := &is.Storage, &is.ReservedStorage
		if spec.Durability == coordination.Memory {
			used, reserved = &is.Memory, &is.ReservedMemory
		}
		*used += uint64(max(info.Bytes, 0))
		*reserved += uint64(max(spec.Retention.Bytes, 0))
	}
	return is
}

// accountInfo answers with the totals of the account, whatever the payload. Brokers that do not
// answer in time are left out.
func (s *Server) accountInfo(ctx context.Context, c *call) {
	s.answer(c, jsapi.AccountResponse{Response: c.Call.Answer(), Account: s.account(ctx)})
}

func (s *Server) account(ctx context.Context) *jsapi.Account {
	state := s.state()
	total := s.ownUsage()
	total.Calls-- // but this one
	s.askUsage(ctx, others(state, s.config.Self), &total)
	account := &jsapi.Account{
		Memory: total.Memory, Storage: total.Storage, Consumers: total.Ephemerals, Limits: jsapi.NoAccountLimits,
		API: jsapi.APIStats{Level: jsapi.APILevel, Total: total.Calls, Errors: total.Errors},
	}
	for t := range state.Topics() {
		if t.Deleting {
			continue
		}
		account.Streams++
		account.Consumers += len(state.Subscriptions(t.ID))
		reserved := &account.ReservedStorage
		if t.Spec.Durability == coordination.Memory {
			reserved = &account.ReservedMemory
		}
		*reserved += uint64(max(t.Spec.Retention.Bytes, 0)) * uint64(max(t.Spec.Shards, 1))
	}
	return account
}

func others(state *coordination.State, self string) (ids []string) {
	for _, b := range state.Brokers {
		if b.ID != self {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// describeLed returns the info of the stream with that key, or nil if this broker does not lead it.
func (s *Server) describeLed(key string) *jsapi.StreamInfo {
	t := s.topics.ShardByKey(key)
	if t == nil {
		return nil
	}
	shard := t.Led()
	if shard == nil {
		return nil
	}
	return s.describeStream(t, shard)
}

var _ publish.Taker = (*Server)(nil)
